"""Accepts connections on one address: limits their number and rate, closes idle and slow ones, and stops in an orderly
way, answering every request that was read.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf

from moldau.base import counters
from moldau.base.limits import ACCEPTS_PER_TURN_MAX, SCRATCH_BYTES, THROTTLED_SOCKETS_MAX
from moldau.platforms.addresses import bind_address
from moldau.security.acls.access import UNRESTRICTED, Access
from moldau.security.principals import ANONYMOUS, Principal
from moldau.security.quotas.connections import ConnectionQuotas, Refusal
from moldau.server.audit import FailedLogin
from moldau.server.conversation import ConnectionBudget, Reply
from moldau.server.handshakes import Handshakes
from moldau.server.router import Router
from moldau.server.sasl_session import SaslServer, SaslSession
from moldau.server.socket_connection import SocketConnection
from moldau.server.sweeping import Sweeper
from moldau.server.tls_connection import ServerHandshake, ServerTls, TlsConnection

log = logging.getLogger("moldau.server")
BACKLOG = 1024
LINES_PER_SECOND_MAX = 10
SYSTEM_BUFFER = -1
ACCEPT_RETRY_S = 0.1
ACCEPT_LINE_EVERY_S = 10.0
DRAIN_POLL_S = 0.005


def bound_socket(host: str, port: int, is_shared: bool = False) -> socket.socket:
    """Return a socket that is bound to the address but does not listen yet.

    Several processes of one user can listen on a shared address: the system gives each connection to one of them.
    """
    family, address = bind_address(host, port)
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


class Listener:
    def __init__(
        self,
        name: str,
        router: Router,
        budget: ConnectionBudget,
        frame_bytes_max: int,
        quotas: ConnectionQuotas,
        idle_ms_max: int,
        send_buffer_bytes: int = SYSTEM_BUFFER,
        receive_buffer_bytes: int = SYSTEM_BUFFER,
        access: Callable[[Principal, str], Access] = lambda principal, host: UNRESTRICTED,
        on_gone: Callable[[str], None] = lambda _: None,
        descriptor_max: int = sys.maxsize,
        sasl: SaslServer | None = None,
        tls: ServerTls | None = None,
        on_login_failed: Callable[[FailedLogin], None] = lambda _: None,
    ) -> None:
        """`quotas` counts the connections of all listeners. `access` returns what a principal may do that connects from
        a host. `on_gone` is called with the address of each connection that has ended. A connection whose file
        descriptor is above `descriptor_max` is refused: the remaining descriptors are reserved for files. With `tls`
        all connections are encrypted; with `sasl` clients authenticate before their first request."""
        self.name = name
        self._router = router
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        self._quotas = quotas
        self._counters = budget.counters
        self._idle_s_max = idle_ms_max / 1000 if idle_ms_max >= 0 else inf
        self._sweeps = Sweeper(budget.limits, self._idle_s_max)
        self._buffers = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
        self._access = access
        self._on_gone = on_gone
        self._descriptor_max = descriptor_max
        self._sasl = sasl
        self._sasl_sessions: dict[SocketConnection, SaslSession] = {}
        self._tls = tls
        self._on_login_failed = on_login_failed
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._connections: set[SocketConnection] = set()
        self._throttled: set[socket.socket] = set()
        """Connections of addresses that come too fast: they are closed after a pause, and never read."""
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
        self._is_accepting = False
        self._resume_accepting()
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
        self._close_all()

    def abort(self) -> None:
        """Close all connections at once."""
        self._stop_accepting()
        self._close_all()

    def _close_all(self) -> None:
        for connection in list(self._connections):
            connection.close()
        if self._sweeper is not None:  # it was started
            self._handshakes.close()

    def _stop_accepting(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._stop_waiting_for_clients()
        for sock in list(self._throttled):
            self._close_throttled(sock)
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
            if not self._quotas.has_slot(self.name):
                self._wait_for_slot()
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:
                self._on_accept_fault(fault)
                return
            if address is None:  # macOS gives no address for a client that has disconnected already
                sock.close()
                continue
            self._accept(sock, address[0], address[1])
            pause_ms = self._quotas.accept_pause_ms(self.name, self._now_ms())
            if pause_ms:
                self._counters.add(counters.ACCEPT_PAUSED_RATE)
                self._pause(pause_ms / 1000, "max.connection.creation.rate is reached")
                return

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _wait_for_slot(self) -> None:
        """Stop accepting until a connection is closed. New connections wait in the backlog, as with Kafka."""
        self._counters.add(counters.ACCEPT_PAUSED_MAX_CONNECTIONS)
        self._stop_waiting_for_clients()
        self._log_pause("max.connections or the limit of open files is reached")
        self._quotas.when_slot_is_free(self._resume_accepting)

    def _pause(self, seconds: float, reason: str) -> None:
        self._stop_waiting_for_clients()
        self._log_pause(reason)
        self._loop.call_later(seconds, self._resume_accepting)

    def _log_pause(self, reason: str) -> None:
        if self._loop.time() >= self._next_accept_line_s:
            self._next_accept_line_s = self._loop.time() + ACCEPT_LINE_EVERY_S
            log.warning("listener %s: new connections wait: %s", self.name, reason)

    def _on_accept_fault(self, fault: OSError) -> None:
        """Stop accepting for a moment, because file descriptors or memory ran out. New connections wait in the backlog;
        open ones continue."""
        if fault.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            raise fault
        self._pause(ACCEPT_RETRY_S, f"{fault.strerror}; {_next_step(fault)}")

    def _resume_accepting(self) -> None:
        if self._socket is not None and not self._is_accepting:
            self._is_accepting = True
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _stop_waiting_for_clients(self) -> None:
        if self._socket is not None and self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._socket.fileno())

    def _accept(self, sock: socket.socket, host: str, port: int) -> None:
        if sock.fileno() > self._descriptor_max:
            self._counters.add(counters.CONNECTIONS_REFUSED_FILES)
            self._warn(f"connection from {host} refused: too many open files; raise the limit (`ulimit -n`)")
            sock.close()
            self.refused += 1
            return
        refusal = self._quotas.enter(self.name, host, self._now_ms())
        if refusal is not None:
            self._refuse(sock, host, refusal)
            return
        try:
            self._set_options(sock)
        except OSError as error:  # macOS: the client has disconnected already, or the buffer is larger than allowed
            self._warn(f"connection from {host} closed: the socket options could not be set: {error.strerror}")
            self._quotas.leave(self.name, host)
            sock.close()
            self.refused += 1
            return
        self._counters.add(counters.CONNECTIONS_ACCEPTED)
        self.accepted += 1
        self._connections.add(self._connection(sock, host, f"{host}:{port}"))

    def _refuse(self, sock: socket.socket, host: str, refusal: Refusal) -> None:
        """Close a connection; if its address comes too fast, after a pause, so that it does not come again at once."""
        self.refused += 1
        self._warn(f"connection from {host} refused: {refusal.reason}")
        if not refusal.delay_ms:
            self._counters.add(counters.CONNECTIONS_REFUSED_PER_IP)
            sock.close()
            return
        self._counters.add(counters.CONNECTIONS_REFUSED_IP_RATE)
        self._throttled.add(sock)
        if len(self._throttled) > THROTTLED_SOCKETS_MAX:
            self._close_throttled(sock)
        else:
            self._loop.call_later(refusal.delay_ms / 1000, self._close_throttled, sock)

    def _close_throttled(self, sock: socket.socket) -> None:
        self._throttled.discard(sock)
        sock.close()

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
        return self._router.for_connection(self.name, peer, self._access(principal, host)).answer

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # finds clients whose machine is gone
        for buffer, size in self._buffers:
            if size != SYSTEM_BUFFER:
                sock.setsockopt(socket.SOL_SOCKET, buffer, size)

    def _on_closed(self, connection: SocketConnection, reason: str) -> None:
        self._connections.discard(connection)
        host = connection.peer.rpartition(":")[0]
        mechanism, user = "SSL", ""
        if (session := self._sasl_sessions.pop(connection, None)) is not None:
            session.end()
            mechanism, user = session.tried
            if not reason and session.failure:
                # A client that ends the connection before it is refused still leaves a line.
                reason, connection.closed_by = session.failure, counters.AUTHENTICATION_FAILED
        self._quotas.leave(self.name, host)
        if reason or connection.closed_by == counters.CLOSED_IDLE:
            self._counters.add(connection.closed_by)
        if reason:
            self._warn(f"connection from {connection.peer} closed: {reason}")
        if reason and connection.closed_by == counters.AUTHENTICATION_FAILED:
            self._on_login_failed(FailedLogin(self.name, host, mechanism, user, reason))
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
        """Close connections that are idle or slow for too long, also with an incomplete frame."""
        excess = self._quotas.excess(self.name)
        for each in self._sweeps.to_close(self._connections, self._loop.time(), excess):
            each.connection.close(each.reason, each.closed_by)
        self._sweeper = self._loop.call_later(max(0.05, min(self._idle_s_max / 4, 10.0)), self._sweep)


def _next_step(fault: OSError) -> str:
    if fault.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (`ulimit -n`)"
    return "the system is short of memory for sockets"
