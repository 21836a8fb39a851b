"""Runs work in threads beside the event loop: `RunInThread` in a real process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import thread_time
from typing import TypeVar

from moldau.base.errors import StorageFault
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.steps import WaitingSteps
from moldau.runtime.internal_errors import complete_alone

log = logging.getLogger("moldau.server")
R = TypeVar("R")


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


def in_thread(run_in_thread: RunInThread, work: Callable[[], R]) -> WaitingSteps[R]:
    """Wait for the result of `work`, which is called in a thread. What it raises is raised here."""
    outcome: list[R] = []
    errors: list[Exception] = []
    took_s = 0.0

    def run() -> None:
        nonlocal took_s
        began_s = thread_time()
        try:
            outcome.append(work())
        except Exception as error:  # it must not leave the thread: that would stop the node
            errors.append(error)
        took_s = thread_time() - began_s

    done = run_in_thread(run)
    if not done.done:
        yield done.map(lambda _: took_s)
    if errors:
        # `pop`: the error has this frame in its traceback. If the frame kept the error, both would be garbage that only
        # a collection finds, with everything that the work had in memory.
        raise errors.pop()
    return outcome[0]
