"""The network between the nodes of a cluster as proxies in a thread: any link can be cut, in one direction or both.

Nodes listen on their own ports and advertise those of the proxies, so that all their traffic passes here. Linux shows
which process opened a connection: the socket at its other end belongs to one of the nodes' processes, or to a client.
Bytes on a cut link are held back and sent when the link is restored, as TCP would send them again; neither side notices
anything else.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Self

CLIENT = 0
"""Any process that is not a node; nodes have ids from 1."""
CHUNK_BYTES = 1 << 16
Link = tuple[int, int]
"""Sender and receiver."""


class Network:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._held: frozenset[Link] = frozenset()
        self._changed = asyncio.Event()
        self._pids: dict[int, int] = {}
        self._doors: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        """One for each connection."""
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
        """Cut these links and restore all others."""
        self._loop.call_soon_threadsafe(self._hold, frozenset(links))

    def restore(self) -> None:
        self.cut(())

    def _hold(self, links: frozenset[Link]) -> None:
        self._held = links
        self._changed.set()
        self._changed = asyncio.Event()

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
        writers: list[asyncio.StreamWriter] = []
        try:
            near, answer = await asyncio.open_connection(sock=accepted)
            writers.append(answer)
            source = self._source(answer)
            await self._passes(source, node)
            far, request = await asyncio.open_connection("127.0.0.1", port)
            writers.append(request)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(near, request, (source, node)))
                both.create_task(self._pump(far, answer, (node, source)))
        except* OSError:
            pass  # one of the two is gone, so close the connection
        finally:
            for writer in writers:
                writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if link in self._held:
                self.bytes_held[link] += len(data)
            await self._passes(*link)
            writer.write(data)
            await writer.drain()
        await self._passes(*link)
        raise ConnectionResetError  # close the other direction too: brokers and clients do not half-close

    async def _passes(self, source: int, target: int) -> None:
        while (source, target) in self._held:
            await self._changed.wait()

    def _source(self, writer: asyncio.StreamWriter) -> int:
        here, there = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
        if here is None or there is None:
            raise ConnectionResetError  # it was closed before we looked
        inode = _socket_inode(there[1], here[1])
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
