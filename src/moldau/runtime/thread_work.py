"""Runs work in threads beside the event loop: `RunInThread` in a real process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from moldau.base.errors import StorageFault
from moldau.base.promise import Promise
from moldau.runtime.internal_errors import complete_alone

log = logging.getLogger("moldau.server")


class ThreadWork:
    """Any fault of the work but a StorageFault is a bug: `on_fault` is called with it, as it is if no thread can be
    started."""

    __slots__ = ("_is_closed", "_on_fault", "_running", "_threads")

    def __init__(self, on_fault: Callable[[Exception], None], threads: ThreadPoolExecutor | None = None) -> None:
        """Without `threads` the event loop's own are used."""
        self._on_fault = on_fault
        self._threads = threads
        self._running: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def run(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        """Run the work in a thread; the promise gets its StorageFault, if there is one. Once closed, or without a
        thread, the promise is never completed."""
        done: Promise[StorageFault | None] = Promise()
        if self._is_closed:
            return done
        try:
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except RuntimeError as no_thread:
            self._on_fault(no_thread)
            return done

        def finished(future: asyncio.Future[None]) -> None:
            self._running.discard(future)
            fault = future.exception()
            if fault is not None and not isinstance(fault, StorageFault):
                self._on_fault(fault if isinstance(fault, Exception) else RuntimeError(repr(fault)))
                fault = None
            complete_alone(done, fault, log, "a thread")

        self._running.add(running)
        running.add_done_callback(finished)
        return done

    async def wait(self) -> None:
        """Wait until all work that was begun is done."""
        if self._running:
            await asyncio.wait(self._running)

    def close(self) -> None:
        """Begin no more work, and let threads of its own end."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False)
