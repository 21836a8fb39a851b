"""The processes that evaluate views: a few of them share the work of all views of this node.

A thread for each process exchanges messages with it; waiting for a socket does not block the loop. Processes are
started for the first piece of work and ended after they were idle for a while. If one fails:

- It took too much CPU time or memory, or crashed: its piece of work has failed for good.
- It could not start, was killed by somebody else, or said nothing for 300 s: its work is not to blame and may be tried
  again.
- It has done other work before, and the reason is not CPU time: its work is tried once more in a new process.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from moldau.base import limits, own_configs
from moldau.base.broker_configs import broker_value
from moldau.base.config_def import BrokerLayers
from moldau.base.promise import Promise
from moldau.log.reading import Slice
from moldau.runtime.views.ports import view_task
from moldau.runtime.views.queues import Result, ViewQueues, ViewWork
from moldau.runtime.views.worker import Worker
from moldau.views.jobs import ViewFailed

if TYPE_CHECKING:
    from moldau.views.definition import ViewDefinition

IDLE_S: Final = 60.0
COMMAND: Final = (sys.executable, "-m", "moldau.runtime.views.process_worker")


class ViewWorkers:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        workers: int = limits.VIEW_WORKERS,
        idle_s: float = IDLE_S,
        cpu_max_s: float = limits.VIEW_CPU_SECONDS,
        memory_bytes: int = limits.VIEW_MEMORY_BYTES,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._loop = loop
        self._idle_s = idle_s
        self._queues = ViewQueues(workers)
        self._idle = [Worker([*command, str(memory_bytes), str(cpu_max_s)], cpu_max_s) for _ in range(workers)]
        """The worker that was busy last is at the end: it gets the next work, and others can end."""
        self._idle_timers: dict[Worker, asyncio.TimerHandle] = {}
        self._all = tuple(self._idle)
        self._is_closed = False

    def evaluate(self, view: str, definition: ViewDefinition, records: Slice, partition: int) -> Promise[Result]:
        done: Promise[Result] = Promise()
        if self._is_closed:
            done.complete(ViewFailed("the broker stops", is_retriable=True))
            return done
        self._queues.add(ViewWork(view, view_task(definition, records, partition), records, done))
        self._dispatch()
        return done

    def withdraw(self, view: str, done: Promise[Result]) -> None:
        self._queues.withdraw(view, done)

    def close(self) -> None:
        self._is_closed = True
        self._queues.clear()
        for timer in self._idle_timers.values():
            timer.cancel()
        for worker in self._all:
            worker.close(worker in self._idle)

    def _dispatch(self) -> None:
        """Give waiting work to idle workers."""
        while self._idle and not self._is_closed and (work := self._queues.begin_next()) is not None:
            worker = self._idle.pop()
            if (timer := self._idle_timers.pop(worker, None)) is not None:
                timer.cancel()
            try:
                threading.Thread(target=self._run, args=(worker, work), name="view-worker", daemon=True).start()
            except RuntimeError as refused:
                failed = ViewFailed(f"no thread could be started: {refused}", is_retriable=True)
                self._loop.call_soon(self._on_result, worker, work, failed)

    def _run(self, worker: Worker, work: ViewWork) -> None:
        """In a thread: do this piece of work."""
        result: Result = ViewFailed("the view's worker failed", is_retriable=True)
        try:
            result = worker.run(work.task)
        finally:  # whatever happens, the worker is idle again
            with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
                self._loop.call_soon_threadsafe(self._on_result, worker, work, result)

    def _on_result(self, worker: Worker, work: ViewWork, result: Result) -> None:
        self._idle.append(worker)
        self._queues.finish(work)
        if self._is_closed:
            worker.stop()
            return
        self._idle_timers[worker] = self._loop.call_later(self._idle_s, worker.stop)
        self._dispatch()
        work.done.complete(result)


def view_workers(
    loop: asyncio.AbstractEventLoop, configs: BrokerLayers, command: Sequence[str] = COMMAND
) -> ViewWorkers:
    """The workers of a broker, with the limits that its configs say."""

    def whole(name: str) -> int:
        value = broker_value(name, configs)
        assert isinstance(value, int), "the limits of views are whole numbers"
        return value

    return ViewWorkers(
        loop,
        workers=whole(own_configs.VIEW_WORKERS),
        cpu_max_s=whole(own_configs.VIEW_CPU_SECONDS),
        memory_bytes=whole(own_configs.VIEW_MEMORY_BYTES),
        command=command,
    )
