"""Brings logs to disk in a thread, many at a time: whoever asks while one flush runs is served by the next.

A log that could not be brought to disk is not tried again (the kernel may have dropped the pages): the node stops, and
recovery at the next start tells what is really there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.base.errors import StorageFault
from moldau.log.flush import FlushWork
from moldau.replica.flushing import Flushable


class GroupFlusher:
    def __init__(self, loop: asyncio.AbstractEventLoop, on_fault: Callable[[StorageFault], None]) -> None:
        self._loop = loop
        self._on_fault = on_fault
        self._asked: dict[Flushable, None] = {}
        self._running: asyncio.Future[None] | None = None

    def request(self, log: Flushable) -> None:
        self._asked[log] = None
        if self._running is None:
            self._begin()

    async def finish(self) -> None:
        """Waits until everything that was asked for is on disk."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def _begin(self) -> None:
        asked, self._asked = list(self._asked), {}
        works = [(each, work) for each in asked if (work := each.log.begin_flush()) is not None]
        if works:
            self._running = self._loop.run_in_executor(None, _sync, [work for _, work in works])
            self._running.add_done_callback(lambda done: self._end(done, works))

    def _end(self, done: asyncio.Future[None], works: list[tuple[Flushable, FlushWork]]) -> None:
        self._running = None
        failed = done.exception()
        if isinstance(failed, StorageFault):
            self._on_fault(failed)
            return
        if failed is not None:
            raise failed
        for each, work in works:
            each.log.finish_flush(work)
            each.flushed()
        if self._asked:
            self._begin()


def _sync(works: list[FlushWork]) -> None:
    for work in works:
        work.sync()
