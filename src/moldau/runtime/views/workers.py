"""The processes that evaluate views: a few of them share the work of all views of this node.

Processes are started for the first piece of work and ended after they were idle for a while. If one fails:

- It took too much CPU time or memory, or crashed: its piece of work has failed for good.
- It could not start, was killed by somebody else, or said nothing for 300 s: its work is not to blame and may be tried
  again.
- It has done other work before, and the reason is not CPU time: its work is tried once more in a new process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from moldau.base import limits
from moldau.base.broker_configs import broker_integer
from moldau.base.config_def import BrokerLayers
from moldau.base.promise import Promise
from moldau.base.settings import own
from moldau.log.reading import Slice
from moldau.runtime.views.ports import BatchesTask, view_task
from moldau.runtime.views.queues import Result, ViewQueues, ViewWork
from moldau.runtime.views.worker import Worker
from moldau.runtime.worker_processes.process import NoAnswer
from moldau.runtime.worker_processes.thread import IDLE_S, WorkerThread
from moldau.views.jobs import Evaluated, Matching, ViewFailed

if TYPE_CHECKING:
    from moldau.views.definition import ViewDefinition

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
        self._queues = ViewQueues(workers)
        self._idle = [Worker([*command, str(memory_bytes), str(cpu_max_s)], cpu_max_s) for _ in range(workers)]
        """The worker that was busy last is at the end: it gets the next work, and others can end."""
        self._threads = {worker: WorkerThread(loop, worker, "view-worker", idle_s) for worker in self._idle}
        self._is_closed = False

    def evaluate(
        self, view: str, definition: ViewDefinition, records: Slice, partition: int
    ) -> Promise[Evaluated | ViewFailed]:
        done: Promise[Evaluated | ViewFailed] = Promise()
        self._add(ViewWork(view, view_task(definition, records, partition), records, done))
        return done

    def match(self, user: str, task: BatchesTask) -> Promise[Matching | ViewFailed]:
        """Find the records of fetched batches that match a condition. Users have their turns as views have."""
        done: Promise[Matching | ViewFailed] = Promise()
        self._add(ViewWork(user, task, None, done))
        return done

    def _add(self, work: ViewWork) -> None:
        if self._is_closed:
            work.done.complete(ViewFailed("the broker stops", is_retriable=True))
            return
        self._queues.add(work)
        self._dispatch()

    def withdraw(self, view: str, done: Promise[Any]) -> None:
        self._queues.withdraw(view, done)

    def close(self) -> None:
        self._is_closed = True
        self._queues.clear()
        for thread in self._threads.values():
            thread.close()

    def _dispatch(self) -> None:
        """Give waiting work to idle workers."""
        while self._idle and not self._is_closed and (work := self._queues.begin_next()) is not None:
            worker = self._idle.pop()
            self._threads[worker].run(partial(worker.run, work.task), partial(self._on_result, worker, work))

    def _on_result(self, worker: Worker, work: ViewWork, result: Result | NoAnswer) -> None:
        self._idle.append(worker)
        self._queues.finish(work)
        if self._is_closed:
            return
        self._dispatch()
        work.done.complete(worker.failed(result) if isinstance(result, NoAnswer) else result)


def view_workers(
    loop: asyncio.AbstractEventLoop, configs: BrokerLayers, command: Sequence[str] = COMMAND
) -> ViewWorkers:
    """The workers of a broker, with the limits that its configs say."""
    return ViewWorkers(
        loop,
        workers=broker_integer(own.MOLDAU_VIEWS_WORKERS, configs),
        cpu_max_s=broker_integer(own.MOLDAU_VIEWS_CPU_SECONDS, configs),
        memory_bytes=broker_integer(own.MOLDAU_VIEWS_MEMORY_BYTES, configs),
        command=command,
    )
