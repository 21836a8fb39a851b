"""One process that evaluates views, as the broker sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.platforms.process_limits import has_used_up_cpu_time, was_killed
from moldau.runtime.views.ports import BatchesTask, ViewTask
from moldau.runtime.views.queues import Result
from moldau.runtime.worker_processes.process import Died, NoAnswer, NotStarted, Silent, Unreadable, WorkerProcess
from moldau.views.jobs import ViewFailed

SILENCE_MAX_S: Final = 300.0
"""A worker that says nothing for so long is stuck: its disk, or a machine without time for it."""
ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "2"}
"""The C library reserves 64 MiB of addresses for each arena, one for each thread that allocates at the same time: they
would use up the limit of a worker's memory."""


class Worker(WorkerProcess[Result]):
    def __init__(self, command: Sequence[str], cpu_max_s: float) -> None:
        super().__init__(command, environment=ENVIRONMENT)
        self._too_slow = ViewFailed(
            f"evaluating the view took more than {cpu_max_s:g} s of CPU time", is_divisible=True
        )

    def run(self, task: ViewTask | BatchesTask) -> Result:
        has_worked = self.has_answered
        result = self._evaluate(task)
        if has_worked and isinstance(result, ViewFailed) and not result.is_retriable and result != self._too_slow:
            result = self._evaluate(task)  # what earlier work has left in the memory of a process is not to blame
        return result

    def _evaluate(self, task: ViewTask | BatchesTask) -> Result:
        result = self.start() or self.ask(task, SILENCE_MAX_S)
        if isinstance(result, NoAnswer):
            return self.failed(result)
        if isinstance(result, ViewFailed) and not result.is_retriable:
            self.kill()  # it may hold much memory
        return result

    def failed(self, outcome: NoAnswer) -> ViewFailed:
        """Say why there is no result, and whether the work is to blame for that."""
        match outcome:
            case NotStarted(what, why):
                what = "worker" if what == "process" else what
                return ViewFailed(f"no {what} could be started: {why}", is_retriable=True)
            case Silent(seconds):
                why = f"the view's worker said nothing for {seconds:g} s and was stopped"
                return ViewFailed(why, is_retriable=True)
            case Unreadable(error):
                return ViewFailed(f"the view's worker failed: {error}", is_retriable=True)
            case Died(code, was_ready):
                return self._died(code, was_ready)
        return ViewFailed(f"evaluating the view failed with {outcome.error}", is_divisible=True)

    def _died(self, code: int | None, was_ready: bool) -> ViewFailed:
        if not was_ready:
            return ViewFailed(f"the view's worker died before it was ready, with code {code}", is_retriable=True)
        if has_used_up_cpu_time(code):
            return self._too_slow
        if was_killed(code):
            return ViewFailed("the view's worker was killed: the machine may be short of memory", is_retriable=True)
        return ViewFailed(
            f"the view's worker died with code {code}; it may need more memory than a worker has", is_divisible=True
        )
