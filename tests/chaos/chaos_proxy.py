"""The network between the nodes of a cluster as proxies in a thread: any link can be cut, in one direction or both, and
every connection can be slow in its own way.

Nodes listen on their own ports and advertise those of the proxies, so that all their traffic passes here. Linux shows
which process opened a connection: the socket at its other end belongs to one of the nodes' processes, or to a client.
Bytes on a cut link are held back and sent when the link is restored, as TCP would send them again; neither side notices
anything else. What was sent arrives even if its sender has closed the connection meanwhile: a client that has given up
and asks again on another connection can be overtaken by its own first request.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast

CLIENT = 0
"""Any process that is not a node; nodes have ids from 1."""
WAITING_BYTES_MAX = 1 << 22
"""A sender has to wait when so much of it is on the way, as with the windows of TCP."""
Link = tuple[int, int]
"""Sender and receiver."""


@dataclass(frozen=True, eq=False)
class Slowness:
    """Bytes on these links take longer: each direction of each connection has a delay of its own, so that messages of
    different connections overtake each other."""

    links: Collection[Link]
    low_s: float
    high_s: float
    share: float = 1.0
    """So many of the connections are slow, the others are not."""
    rng: random.Random = field(default_factory=random.Random)

    def draw(self) -> float:
        return self.rng.uniform(self.low_s, self.high_s) if self.rng.random() < self.share else 0.0


class Network:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._cuts: Counter[Link] = Counter()
        self._changed = asyncio.Event()
        self._pids: dict[int, int] = {}
        self._doors: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()
        self.slow: list[Slowness] = []
        self.bytes_held: Counter[Link] = Counter()
        """Number of bytes that had to wait, by link."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def proxy(self, node: int, port: int) -> int:
        """Return the port to advertise for a port on which the node listens."""
        return asyncio.run_coroutine_threadsafe(self._open(node, port), self._loop).result(10)

    def runs_as(self, node: int, pid: int) -> None:
        """Must be called before the process can have connected to anyone."""
        self._pids[node] = pid

    def cut(self, links: Iterable[Link]) -> None:
        """Cut these links once more: one that was cut twice has to be restored twice."""
        self._loop.call_soon_threadsafe(self._count_cuts, list(links), 1)

    def restore(self, links: Iterable[Link] | None = None) -> None:
        """Undo one cut of these links, or all cuts."""
        self._loop.call_soon_threadsafe(self._count_cuts, None if links is None else list(links), -1)

    def slow_down(self, slowness: Slowness) -> None:
        self._loop.call_soon_threadsafe(self.slow.append, slowness)

    def speed_up(self, slowness: Slowness) -> None:
        """New messages are as fast as before; those on their way stay late."""
        self._loop.call_soon_threadsafe(self.slow.remove, slowness)

    def break_connections(self, links: Iterable[Link]) -> None:
        """Close all connections that have one of these links; what was on its way is lost."""
        self._loop.call_soon_threadsafe(self._abort, frozenset(links))

    def _count_cuts(self, links: list[Link] | None, change: int) -> None:
        if links is None:
            self._cuts.clear()
        for link in links or ():
            self._cuts[link] = max(0, self._cuts[link] + change)
        self._changed.set()
        self._changed = asyncio.Event()

    def _abort(self, links: frozenset[Link]) -> None:
        for connection in list(self._connections):
            if not links.isdisjoint((connection.request.link, connection.answer.link)):
                connection.abort()

    async def _open(self, node: int, port: int) -> int:
        door = socket.create_server(("127.0.0.1", 0), backlog=1000)
        door.setblocking(False)
        self._doors.append(door)
        self._loop.add_reader(door, self._accept, node, port, door)
        return int(door.getsockname()[1])

    def _accept(self, node: int, port: int, door: socket.socket) -> None:
        """Accept by hand: asyncio's own server loses accepted connections when it is closed."""
        accepted, _ = door.accept()
        accepted.setblocking(False)
        task = self._loop.create_task(self._serve(node, port, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, node: int, port: int, accepted: socket.socket) -> None:
        try:
            source = self._source(accepted)
        except OSError:  # it was closed before we looked
            accepted.close()
            return
        connection = Connection(self, source, node)
        self._connections.add(connection)
        try:
            await connection.run(accepted, port)
        finally:
            connection.abort()
            self._connections.discard(connection)

    def is_cut(self, link: Link) -> bool:
        return self._cuts[link] > 0

    async def passes(self, link: Link) -> None:
        while self.is_cut(link):
            await self._changed.wait()

    def _source(self, accepted: socket.socket) -> int:
        inode = _socket_inode(accepted.getpeername()[1], accepted.getsockname()[1])
        for node, pid in self._pids.items():
            if _holds(pid, f"socket:[{inode}]"):
                return node
        return CLIENT

    async def _close(self) -> None:
        for door in self._doors:
            self._loop.remove_reader(door)
            door.close()
        await asyncio.sleep(0)  # a task that has not begun cannot clean up
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports are closed in the next iteration of the loop


class Connection:
    """Two lanes between two ends. When an end is closed, the other end is closed after everything that was sent."""

    def __init__(self, network: Network, source: int, node: int) -> None:
        self._network = network
        self.near, self.far = End(), End()
        self.request = Lane(network, (source, node), self.near, self.far)
        self.answer = Lane(network, (node, source), self.far, self.near)

    async def run(self, accepted: socket.socket, port: int) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self.near, sock=accepted)
        await self._network.passes(self.request.link)
        try:
            await loop.create_connection(lambda: self.far, "127.0.0.1", port)
        except OSError:  # nobody listens there
            await self._network.passes(self.answer.link)
            return
        await asyncio.gather(self.request.deliver(), self.answer.deliver())

    def abort(self) -> None:
        self.near.abort()
        self.far.abort()


class End(asyncio.Protocol):
    """The socket at one end of a connection."""

    lane: Lane
    """Which carries what is received here."""
    transport: asyncio.Transport | None = None

    def __init__(self) -> None:
        self.is_writable = asyncio.Event()
        self.is_writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.lane.put(data)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_writable.set()
        self.lane.put(b"")

    def pause_writing(self) -> None:
        self.is_writable.clear()

    def resume_writing(self) -> None:
        self.is_writable.set()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Lane:
    """What is on its way in one direction of a connection; no bytes are its end."""

    def __init__(self, network: Network, link: Link, source: End, target: End) -> None:
        self.link = link
        self._network, self._source, self._target = network, source, target
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._last_due_s = 0.0
        self._delays: dict[Slowness, float] = {}
        source.lane = self

    def put(self, data: bytes) -> None:
        self._last_due_s = max(self._last_due_s, asyncio.get_running_loop().time() + self._delay_s())
        self._waiting.append((self._last_due_s, data))
        self._waiting_bytes += len(data)
        self._arrived.set()
        if self._waiting_bytes > WAITING_BYTES_MAX and self._source.transport is not None:
            self._source.transport.pause_reading()

    def _delay_s(self) -> float:
        slow = [each for each in self._network.slow if self.link in each.links]
        return sum(self._delays.setdefault(each, each.draw()) for each in slow)

    async def deliver(self) -> None:
        loop, target = asyncio.get_running_loop(), self._target.transport
        assert target is not None
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            due_s, data = self._waiting.popleft()
            if (wait_s := due_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            if self._network.is_cut(self.link):
                self._network.bytes_held[self.link] += len(data)
            await self._network.passes(self.link)
            if not data:
                target.close()
                return
            await self._target.is_writable.wait()
            if not target.is_closing():
                target.write(data)
            self._take(len(data))

    def _take(self, count: int) -> None:
        self._waiting_bytes -= count
        transport = self._source.transport
        if self._waiting_bytes <= WAITING_BYTES_MAX and transport is not None and not transport.is_closing():
            transport.resume_reading()


def between(one: int, others: Iterable[int]) -> set[Link]:
    """Return all links between a node and others, in both directions."""
    return {link for other in others for link in ((one, other), (other, one))}


def _socket_inode(local_port: int, remote_port: int) -> str:
    """Return the inode of the local socket with these ports, or "" if there is none any more."""
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f":{local_port:04X}") and fields[2].endswith(f":{remote_port:04X}"):
                return fields[9]
    return ""


def _holds(pid: int, link: str) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as files:
            return any(_target(file) == link for file in files)
    except OSError:  # the process has ended
        return False


def _target(file: os.DirEntry[str]) -> str:
    try:
        return os.readlink(file.path)
    except OSError:  # closed meanwhile
        return ""
