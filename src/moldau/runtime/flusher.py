"""Flushes logs to disk in a thread, many at a time: requests that come during a flush are served by the next one.

A flush that failed is not retried, because the kernel may have dropped the pages: the node stops, and recovery at the
next start finds what is on disk. A flush that failed for lack of space can be retried: it is reported as postponed.
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
        self._requested: dict[Flushable, None] = {}
        self._running: asyncio.Future[None] | None = None

    def request(self, log: Flushable) -> None:
        self._requested[log] = None
        if self._running is None:
            self._begin()

    async def finish(self) -> None:
        """Wait until everything that was requested is on disk."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def _begin(self) -> None:
        requested, self._requested = list(self._requested), {}
        works = []
        for each in requested:
            if each.log.fault is None:
                work = each.log.begin_flush()
                if work is not None:
                    works.append((each, work))
                else:
                    each.flushed()  # the log cleaner has already flushed it
        if works:
            self._running = self._loop.run_in_executor(None, _sync, [work for _, work in works])
            self._running.add_done_callback(lambda done: self._end(done, works))

    def _end(self, done: asyncio.Future[None], works: list[tuple[Flushable, FlushWork]]) -> None:
        self._running = None
        done.result()
        for each, work in works:
            if _is_deleted(each):
                continue
            if work.fault is not None:
                self._on_fault(work.fault)
                return
            each.log.finish_flush(work)
            if work.shortage is not None:
                each.flush_postponed(work.shortage)
            if work.shortage is None or each.log.recovery_point >= work.up_to:
                each.flushed()  # by this work, or meanwhile by the log cleaner
        if self._requested:
            self._begin()


def _is_deleted(each: Flushable) -> bool:
    """Whether the partition was deleted during the flush. Its directory may be renamed by now, and nothing waits."""
    return isinstance(each.log.fault, KafkaError)


def _sync(works: list[FlushWork]) -> None:
    """Runs in a thread. `_end` handles the faults, because it knows whether the partition still exists."""
    for work in works:
        with suppress(StorageFault):  # the work keeps it as `work.fault`
            work.sync()
