"""What the broker's own flusher does, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from machines.process import ProcessTimers
from moldau.base.errors import StorageFault
from moldau.log.flush import FlushWork
from moldau.replica.flushing import Flushable


def begin_flush(log: Flushable) -> FlushWork | None:
    """Do what the broker's flusher does: if space is lacking, the flush is postponed."""
    try:
        work = log.log.begin_flush()
    except StorageFault as fault:
        if not fault.is_shortage:
            raise
        log.flush_postponed(fault)
        return None
    if work is None:
        log.flushed()
    return work


def end_flush(log: Flushable, work: FlushWork, sync: Callable[[], None]) -> StorageFault | None:
    """Sync, and do what the broker's flusher does then. Return a fault because of which the node stops."""
    with suppress(StorageFault):  # the work keeps it
        sync()
    if log.log.fault is not None:
        return None
    if work.fault is not None:
        return work.fault
    log.log.finish_flush(work)
    if work.shortage is not None:
        log.flush_postponed(work.shortage)
    if work.shortage is None or log.log.recovery_point >= work.up_to:
        log.flushed()
    return None


class SlowFlusher:
    """Flushes logs as the broker's own flusher does, after a random delay."""

    def __init__(
        self, timers: ProcessTimers, delay_ms: Callable[[], int], on_fault: Callable[[StorageFault], None]
    ) -> None:
        self._timers = timers
        self._delay_ms = delay_ms
        self._on_fault = on_fault
        self._asked: dict[Flushable, None] = {}
        self._is_running = False

    def request(self, log: Flushable) -> None:
        self._asked[log] = None
        if not self._is_running:
            self._begin()

    def _begin(self) -> None:
        asked, self._asked = list(self._asked), {}
        works = []
        for each in asked:
            if each.log.fault is None:
                work = begin_flush(each)
                if work is not None:
                    works.append((each, work))
        if works:
            self._is_running = True
            self._timers.after_ms(self._delay_ms(), lambda: self._end(works))

    def _end(self, works: list[tuple[Flushable, FlushWork]]) -> None:
        self._is_running = False
        for each, work in works:
            fault = end_flush(each, work, work.sync)
            if fault is not None:
                self._on_fault(fault)
                return
        if self._asked and not self._is_running:
            self._begin()
