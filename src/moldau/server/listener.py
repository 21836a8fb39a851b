"""Accepts connections on one address and keeps them: limits on their number, an end for those that are idle, and an
orderly stop in which every request that was read is answered.
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
from moldau.server.conversation import ReceiveBudget
from moldau.server.router import Router
from moldau.server.socket_connection import SocketConnection

log = logging.getLogger("moldau.server")
BACKLOG = 1024
LINES_PER_SECOND_MAX = 10
SYSTEM_BUFFER = -1
ACCEPT_RETRY_S = 0.1
ACCEPT_LINE_EVERY_S = 10.0
DRAIN_POLL_S = 0.005


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has taken the address and does not listen yet."""
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
        on_gone: Callable[[str], None] = lambda _: None,
        descriptor_max: int = sys.maxsize,
    ) -> None:
        """`on_gone` is told the address of each connection that has ended. A connection whose file descriptor is above
        `descriptor_max` is refused: the rest are for files."""
        self.name = name
        self._router = router
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        self._connections_max = connections_max
        self._connections_per_ip_max = connections_per_ip_max
        self._idle_s_max = idle_ms_max / 1000
        self._buffers = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
        self._on_gone = on_gone
        self._descriptor_max = descriptor_max
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._connections: set[SocketConnection] = set()
        self._per_ip: Counter[str] = Counter()
        self._socket: socket.socket | None = None
        self._told_second = self._told = self._untold = 0
        self._next_accept_line_s = 0.0
        self._sweeper: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Takes the address, without accepting yet; gives the real one, as port 0 means any that is free."""
        return self.adopt(bound_socket(host, port))

    def adopt(self, bound: socket.socket) -> tuple[str, int]:
        """The same with an address that was taken before."""
        self._socket = bound
        host, port = bound.getsockname()[:2]
        return host, port

    def start(self) -> None:
        assert self._socket is not None, "bind comes first"
        self._loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)
        self._loop.add_reader(self._socket.fileno(), self._acceptable)
        self._sweep()

    def release(self) -> None:
        """Gives the address back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def stop(self, grace_s: float) -> None:
        """No new connections, no new requests; what was asked is answered; then all are closed."""
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
        """All connections end here and now."""
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
        """Looks again and again, while stopping, whether every reply has left."""
        if self._drained is None:
            return
        if all(connection.is_answered for connection in self._connections):
            self._drained.set()
        else:
            self._loop.call_later(DRAIN_POLL_S, self._check_drained)

    def _acceptable(self) -> None:
        assert self._socket is not None
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:
                self._cannot_accept(fault)
                return
            if address is None:  # macOS names no address of a client that has gone already
                sock.close()
                continue
            self._welcome(sock, address[0], address[1])

    def _cannot_accept(self, fault: OSError) -> None:
        """Out of file descriptors: those that are open go on, new ones wait in the backlog a moment."""
        assert self._socket is not None
        if fault.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            raise fault
        if self._loop.time() >= self._next_accept_line_s:
            self._next_accept_line_s = self._loop.time() + ACCEPT_LINE_EVERY_S
            log.warning("listener %s: new connections wait: %s; %s", self.name, fault.strerror, _next_step(fault))
        fd = self._socket.fileno()
        self._loop.remove_reader(fd)
        self._loop.call_later(ACCEPT_RETRY_S, self._accept_again, fd)

    def _accept_again(self, fd: int) -> None:
        if self._socket is not None:
            self._loop.add_reader(fd, self._acceptable)

    def _welcome(self, sock: socket.socket, host: str, port: int) -> None:
        if len(self._connections) >= self._connections_max or self._per_ip[host] >= self._connections_per_ip_max:
            self._tell(f"connection from {host} refused: the limit of connections is reached")
            sock.close()
            return
        if sock.fileno() > self._descriptor_max:
            self._tell(f"connection from {host} refused: too many open files; raise the limit (`ulimit -n`)")
            sock.close()
            return
        try:
            self._set_options(sock)
        except OSError as refused:  # macOS: the client has gone already, or a buffer is larger than it grants
            self._tell(f"connection from {host} closed: its socket takes no options: {refused.strerror}")
            sock.close()
            return
        self._per_ip[host] += 1
        peer = f"{host}:{port}"
        connection = SocketConnection(
            self._loop,
            sock,
            peer,
            self._scratch,
            partial(self._router.answer, self.name, peer),
            self._frame_bytes_max,
            self._budget,
            self._gone,
        )
        self._connections.add(connection)

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for buffer, size in self._buffers:
            if size != SYSTEM_BUFFER:
                sock.setsockopt(socket.SOL_SOCKET, buffer, size)

    def _gone(self, connection: SocketConnection, reason: str) -> None:
        self._connections.discard(connection)
        host = connection.peer.rpartition(":")[0]
        self._per_ip[host] -= 1
        if not self._per_ip[host]:
            del self._per_ip[host]
        if reason:
            self._tell(f"connection from {connection.peer} closed: {reason}")
        self._on_gone(connection.peer)

    def _tell(self, line: str) -> None:
        """One log line for each refused connection, but not for each of thousands: an attack must not fill the disk."""
        second = int(self._loop.time())
        if second != self._told_second:
            if self._untold:
                log.warning("%d more connections were refused or closed", self._untold)
            self._told_second, self._told, self._untold = second, 0, 0
        if self._told < LINES_PER_SECOND_MAX:
            self._told += 1
            log.warning("%s", line.encode("unicode_escape").decode())
        else:
            self._untold += 1

    def _sweep(self) -> None:
        """Closes connections that said nothing for too long, half a frame included."""
        oldest = self._loop.time() - self._idle_s_max
        for connection in [c for c in self._connections if c.last_active < oldest and not c.is_waiting_for_us]:
            connection.close("idle for too long" if not connection.is_idle else "")
        self._sweeper = self._loop.call_later(max(0.05, min(self._idle_s_max / 4, 10.0)), self._sweep)


def _next_step(fault: OSError) -> str:
    if fault.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (`ulimit -n`)"
    return "the system is short of memory for sockets"
