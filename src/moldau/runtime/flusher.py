"""Brings logs to disk in a thread, many at a time: whoever asks while one flush runs is served by the next.

A log that could not be brought to disk is not tried again (the kernel may have dropped the pages): the node stops, and
recovery at the next start tells what is really there. One for which there was no room is: who asked is told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from moldau.base.errors import KafkaError, StorageFault
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
        works = []
        for each in asked:
            if each.log.fault is None:
                work = each.log.begin_flush()
                if work is not None:
                    works.append((each, work))
                else:
                    each.flushed()  # by another: who cleans a log brings it to disk first
        if works:
            self._running = self._loop.run_in_executor(None, _sync, [work for _, work in works])
            self._running.add_done_callback(lambda done: self._end(done, works))

    def _end(self, done: asyncio.Future[None], works: list[tuple[Flushable, FlushWork]]) -> None:
        self._running = None
        done.result()
        for each, work in works:
            if _is_gone(each):
                continue
            if work.fault is not None:
                self._on_fault(work.fault)
                return
            each.log.finish_flush(work)
            if work.shortage is not None:
                each.flush_postponed(work.shortage)
            if work.shortage is None or each.log.recovery_point >= work.up_to:
                each.flushed()  # if not by this work, then by another: who cleans a log brings it to disk as well
        if self._asked:
            self._begin()


def _is_gone(each: Flushable) -> bool:
    """Its partition was deleted meanwhile: the directory may have been renamed under the flush, and nobody waits."""
    return isinstance(each.log.fault, KafkaError)


def _sync(works: list[FlushWork]) -> None:
    """Runs in a thread. Whether a fault matters is told there where it is known if the log is still wanted."""
    for work in works:
        with suppress(StorageFault):  # it is kept in the work
            work.sync()
