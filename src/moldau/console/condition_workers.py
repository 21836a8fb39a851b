"""Evaluates the conditions of searches, in processes as those that evaluate views: a condition can take much time and
memory, and Python has only one thread at work. Users have their turns; idle processes end."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Final

from moldau.base import limits
from moldau.base.promise import Promise
from moldau.runtime.views.ports import BatchesTask, missing_for_views
from moldau.runtime.views.workers import ViewWorkers
from moldau.views.jobs import Matching, ViewFailed
from moldau.web.failures import ApiError, too_many

WORKERS: Final = 2
CPU_SECONDS: Final = 5.0
"""For one partition of a fetch, which has at most one large batch, or 50,000 records and 64 MiB."""
WAIT_SECONDS: Final = 30.0
STOPS: Final = ViewFailed("the console stops", is_retriable=True)


class Conditions:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._workers: ViewWorkers | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._workers = ViewWorkers(loop, workers=WORKERS, cpu_max_s=CPU_SECONDS, memory_bytes=limits.VIEW_MEMORY_BYTES)

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()

    def match(self, user: str, task: BatchesTask) -> Matching | ViewFailed:
        """Wait in a thread for a worker's result. ApiError if others have all workers for too long."""
        if missing_for_views() is not None:
            raise ApiError(501, "NEEDS_DUCKDB", "where needs DuckDB beside the console: pip install 'moldau[views]'")
        loop, workers = self._loop, self._workers
        assert loop is not None, "the console has started"
        assert workers is not None
        result: Future[Matching | ViewFailed] = Future()
        begun: list[Promise[Matching | ViewFailed]] = []

        def begin() -> None:
            begun.append(workers.match(user, task))
            begun[0].then(result.set_result)

        try:
            loop.call_soon_threadsafe(begin)
            try:
                return result.result(WAIT_SECONDS)
            except TimeoutError:
                loop.call_soon_threadsafe(lambda: workers.withdraw(user, begun[0]))
                raise too_many("other searches with where are under way; try again in a moment") from None
        except RuntimeError:  # the loop is closed
            return STOPS
