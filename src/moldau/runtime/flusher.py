"""Flushes logs to disk in threads, as group commits: what is requested during a flush is synced by the next one.

A flush that failed is not retried, because the kernel may have dropped the pages: the node stops, and recovery at the
next start finds what is on disk. A flush that failed for lack of space or file descriptors can be retried: it is
reported as postponed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from time import monotonic

from moldau.base.errors import KafkaError, StorageFault
from moldau.base.loop_watch import LONG_CALL_S, LOOP_WATCH
from moldau.log.flush import FlushWork
from moldau.replica.flushing import Flushable

_Works = list[tuple[Flushable, FlushWork]]


class LogFlusher:
    """Its threads serve nobody else: a flush does not wait behind reads, or behind the flushes of another flusher."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_fault: Callable[[Exception], None],
        threads: int,
        executor: Executor | None = None,
    ) -> None:
        self._loop = loop
        self._on_fault = on_fault
        self._threads = threads
        self._executor = executor or ThreadPoolExecutor(threads, "flush")
        self._requested: dict[Flushable, None] = {}
        self._is_busy = False
        """Whether requests are only collected: a flush runs, or its result is being passed on."""
        self._unfinished = 0
        """Threads that still work on the flush."""
        self.flushes = 0
        """Logs synced since the start."""
        self._idle = asyncio.Event()
        self._idle.set()

    def request(self, owner: Flushable) -> None:
        self._requested[owner] = None
        if not self._is_busy:
            self._begin()

    @property
    def queued(self) -> int:
        """Logs that wait for their flush, behind the one that runs."""
        return len(self._requested)

    async def finish(self) -> None:
        """Wait until everything that was requested is on disk, or cannot be synced."""
        await self._idle.wait()

    def close(self) -> None:
        """End the threads as soon as they are idle."""
        self._executor.shutdown(wait=False)

    def _begin(self) -> None:
        self._is_busy = True
        self._idle.clear()
        works: _Works = []
        while self._requested and not works:
            requested, self._requested = list(self._requested), {}
            durable = []
            for owner in requested:
                if owner.log.fault is not None:
                    continue
                try:
                    work = owner.log.begin_flush()
                except StorageFault as fault:
                    if fault.is_shortage:
                        owner.flush_postponed(fault)
                    else:
                        self._on_fault(fault)
                    continue
                if work is None:
                    durable.append(owner)  # the log cleaner has already flushed it
                else:
                    works.append((owner, work))
            for owner in durable:
                owner.flushed()
        if works:
            self._start(works)
        else:
            self._rest()

    def _start(self, works: _Works) -> None:
        """Divide the logs among the threads."""
        shares = [works[first :: self._threads] for first in range(min(self._threads, len(works)))]
        self._unfinished = len(shares)
        self.flushes += len(works)
        for share in shares:
            try:
                syncing = self._loop.run_in_executor(self._executor, _sync, [work for _, work in share])
            except RuntimeError as no_thread:
                self._give_up(no_thread)
                return
            syncing.add_done_callback(lambda done: self._on_share_done(done, works))

    def _on_share_done(self, done: asyncio.Future[None], works: _Works) -> None:
        try:
            done.result()
        except Exception as fault:  # a fault of ours: those of the disk are in the works
            self._give_up(fault)
            return
        self._unfinished -= 1
        if not self._unfinished:
            began_s = monotonic()
            try:
                self._report(works)
            finally:
                self._begin()
            took_s = monotonic() - began_s
            if took_s > LONG_CALL_S:
                LOOP_WATCH.note(f"the end of a flush of {len(works)} logs", took_s)

    def _report(self, works: _Works) -> None:
        for owner, work in works:
            if _is_deleted(owner):
                continue
            if work.fault is not None:
                self._on_fault(work.fault)
                return
            owner.log.finish_flush(work)
            if work.shortage is not None:
                owner.flush_postponed(work.shortage)
            if work.shortage is None or owner.log.recovery_point >= work.up_to:
                owner.flushed()  # by this work, or meanwhile by the log cleaner

    def _give_up(self, fault: Exception) -> None:
        """Flush nothing more, because the node stops, and let it stop without waiting for this flush."""
        self._idle.set()
        self._on_fault(fault)

    def _rest(self) -> None:
        self._is_busy = False
        self._idle.set()


def _is_deleted(owner: Flushable) -> bool:
    """Whether the partition was deleted during the flush. Its directory may be renamed by now, and nothing waits. A
    deleted log's `fault` is a KafkaError, a broken one's a StorageFault."""
    return isinstance(owner.log.fault, KafkaError)


def _sync(works: list[FlushWork]) -> None:
    """Runs in a thread. `_report` handles the faults, because it knows whether the partition still exists."""
    for work in works:
        with suppress(StorageFault):  # the work keeps it as `work.fault`
            work.sync()
