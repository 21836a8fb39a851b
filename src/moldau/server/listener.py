"""Accepts connections on one address: limits their number, closes idle ones, and stops in an orderly way, answering
every request that was read.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from moldau.base.limits import ACCEPTS_PER_TURN_MAX, SCRATCH_BYTES
from moldau.security.acls.access import UNRESTRICTED, Access
from moldau.security.principals import ANONYMOUS, Principal
from moldau.server.conversation import ReceiveBudget, Reply
from moldau.server.router import Router
from moldau.server.sasl_session import SaslServer, SaslSession
from moldau.server.socket_connection import SocketConnection
from moldau.server.tls_connection import Handshakes, ServerHandshake, ServerTls, TlsConnection

log = logging.getLogger("moldau.server")
BACKLOG = 1024
LINES_PER_SECOND_MAX = 10
SYSTEM_BUFFER = -1
ACCEPT_RETRY_S = 0.1
ACCEPT_LINE_EVERY_S = 10.0
DRAIN_POLL_S = 0.005


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address but does not listen yet."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


class Listener:
    def __init__(
        self,
        name: str,
        router: Router,
        budget: ReceiveBudget,
        frame_bytes_max: int,
        connections_max: int,
        connections_per_ip_max: int,
        idle_ms_max: int,
        send_buffer_bytes: int = SYSTEM_BUFFER,
        receive_buffer_bytes: int = SYSTEM_BUFFER,
        access: Callable[[Principal, str], Access] = lambda principal, host: UNRESTRICTED,
        on_gone: Callable[[str], None] = lambda _: None,
        descriptor_max: int = sys.maxsize,
        sasl: SaslServer | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """`access` returns what a principal may do that connects from a host. `on_gone` is called with the address of
        each connection that has ended. A connection whose file descriptor is above `descriptor_max` is refused: the
        remaining descriptors are reserved for files. With `tls` all connections are encrypted; with `sasl` clients
        authenticate before their first request."""
        self.name = name
        self._router = router
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        self._connections_max = connections_max
        self._connections_per_ip_max = connections_per_ip_max
        self._idle_s_max = idle_ms_max / 1000
        self._buffers = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
        self._access = access
        self._on_gone = on_gone
        self._descriptor_max = descriptor_max
        self._sasl = sasl
        self._sasl_sessions: dict[SocketConnection, SaslSession] = {}
        self._tls = tls
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._connections: set[SocketConnection] = set()
        self._per_ip: Counter[str] = Counter()
        self.accepted = self.refused = 0
        """Connections since the start, for metrics."""
        self._socket: socket.socket | None = None
        self._warned_second = self._warned = self._suppressed = 0
        self._next_accept_line_s = 0.0
        self._sweeper: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Bind to the address without accepting yet; return the actual address, since port 0 means any free port."""
        return self.adopt(bound_socket(host, port))

    def adopt(self, bound: socket.socket) -> tuple[str, int]:
        """Use a socket that is already bound; return its address."""
        self._socket = bound
        host, port = bound.getsockname()[:2]
        return host, port

    def start(self) -> None:
        assert self._socket is not None, "bind comes first"
        self._loop = asyncio.get_running_loop()
        self._handshakes = Handshakes(self._loop)
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)
        self._sweep()

    def release(self) -> None:
        """Close the listening socket, so that the address is free again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections or requests, answer the requests that were read, then close all connections."""
        self._stop_accepting()
        for connection in self._connections:
            connection.stop_reading()
        self._drained = asyncio.Event()
        self._check_drained()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drained.wait(), grace_s)
        self._drained = None
        for connection in list(self._connections):
            connection.close()

    def abort(self) -> None:
        """Close all connections at once."""
        self._stop_accepting()
        for connection in list(self._connections):
            connection.close()

    def _stop_accepting(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            if self._socket is not None:
                self._loop.remove_reader(self._socket.fileno())
        self.release()

    def _check_drained(self) -> None:
        """While stopping, poll until every reply has been sent."""
        if self._drained is None:
            return
        if all(connection.is_answered for connection in self._connections):
            self._drained.set()
        else:
            self._loop.call_later(DRAIN_POLL_S, self._check_drained)

    def _on_acceptable(self) -> None:
        assert self._socket is not None
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:
                self._pause_accepting(fault)
                return
            if address is None:  # macOS gives no address for a client that has disconnected already
                sock.close()
                continue
            self._accept(sock, address[0], address[1])

    def _pause_accepting(self, fault: OSError) -> None:
        """Stop accepting for a moment, because file descriptors or memory ran out. New connections wait in the backlog;
        open ones continue."""
        assert self._socket is not None
        if fault.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            raise fault
        if self._loop.time() >= self._next_accept_line_s:
            self._next_accept_line_s = self._loop.time() + ACCEPT_LINE_EVERY_S
            log.warning("listener %s: new connections wait: %s; %s", self.name, fault.strerror, _next_step(fault))
        fd = self._socket.fileno()
        self._loop.remove_reader(fd)
        self._loop.call_later(ACCEPT_RETRY_S, self._resume_accepting, fd)

    def _resume_accepting(self, fd: int) -> None:
        if self._socket is not None:
            self._loop.add_reader(fd, self._on_acceptable)

    def _accept(self, sock: socket.socket, host: str, port: int) -> None:
        if len(self._connections) >= self._connections_max or self._per_ip[host] >= self._connections_per_ip_max:
            self._warn(f"connection from {host} refused: the limit of connections is reached")
            sock.close()
            self.refused += 1
            return
        if sock.fileno() > self._descriptor_max:
            self._warn(f"connection from {host} refused: too many open files; raise the limit (`ulimit -n`)")
            sock.close()
            self.refused += 1
            return
        try:
            self._set_options(sock)
        except OSError as error:  # macOS: the client has disconnected already, or the buffer is larger than allowed
            self._warn(f"connection from {host} closed: the socket options could not be set: {error.strerror}")
            sock.close()
            self.refused += 1
            return
        self._per_ip[host] += 1
        self.accepted += 1
        self._connections.add(self._connection(sock, host, f"{host}:{port}"))

    def _connection(self, sock: socket.socket, host: str, peer: str) -> SocketConnection:
        limits = self._frame_bytes_max, self._budget, self._on_closed
        sessions = partial(self._session, host, peer)
        if self._tls is None:
            session = sessions(ANONYMOUS)
            connection = SocketConnection(self._loop, sock, peer, self._scratch, session, *limits)
            self._begin(connection, session)
            return connection
        secured = ServerHandshake(self._tls, self._handshakes, sessions, self._begin)
        return TlsConnection(self._loop, sock, peer, self._scratch, secured, *limits)

    def _begin(self, connection: SocketConnection, session: Callable[[memoryview], Reply]) -> None:
        """Called when a connection can receive its first request."""
        if isinstance(session, SaslSession):
            self._sasl_sessions[connection] = session
            session.begin(connection)

    def _session(self, host: str, peer: str, principal: Principal) -> Callable[[memoryview], Reply]:
        """Return the function that answers the requests of a connection whose transport identifies the principal."""
        if self._sasl is not None:
            return SaslSession(
                self._sasl, self._router, self.name, peer, self._frame_bytes_max, lambda who: self._access(who, host)
            )
        return partial(self._router.answer, self.name, peer, self._access(principal, host))

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for buffer, size in self._buffers:
            if size != SYSTEM_BUFFER:
                sock.setsockopt(socket.SOL_SOCKET, buffer, size)

    def _on_closed(self, connection: SocketConnection, reason: str) -> None:
        self._connections.discard(connection)
        if (session := self._sasl_sessions.pop(connection, None)) is not None:
            session.end()
            # A client that ends the connection before it is refused still leaves a line.
            reason = reason or session.failure
        host = connection.peer.rpartition(":")[0]
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]
        if reason:
            self._warn(f"connection from {connection.peer} closed: {reason}")
        self._on_gone(connection.peer)

    def _warn(self, line: str) -> None:
        """Log a warning for a refused connection, but limit the rate: an attack must not fill the disk."""
        second = int(self._loop.time())
        if second != self._warned_second:
            if self._suppressed:
                log.warning("%d more connections were refused or closed", self._suppressed)
            self._warned_second, self._warned, self._suppressed = second, 0, 0
        if self._warned < LINES_PER_SECOND_MAX:
            self._warned += 1
            log.warning("%s", line.encode("unicode_escape").decode())
        else:
            self._suppressed += 1

    def _sweep(self) -> None:
        """Close connections without traffic for too long, including those with an incomplete frame."""
        oldest = self._loop.time() - self._idle_s_max
        for connection in [c for c in self._connections if c.last_active < oldest and not c.is_waiting_for_us]:
            connection.close("idle for too long" if not connection.is_idle else "")
        self._sweeper = self._loop.call_later(max(0.05, min(self._idle_s_max / 4, 10.0)), self._sweep)


def _next_step(fault: OSError) -> str:
    if fault.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (`ulimit -n`)"
    return "the system is short of memory for sockets"
