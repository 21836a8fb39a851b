"""Cleans logs in a separate process, because a thread that computes would block this process's loop (GIL).

The process is started for the first job and ended after it was idle for a while. If it dies, the job has failed, and
the next job gets a new process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.base.promise import Promise
from moldau.runtime.cleaning.ports import CleaningFailed, CleaningRequest
from moldau.runtime.worker_processes.process import (
    END_MAX_S,
    Died,
    NoAnswer,
    NotStarted,
    Silent,
    Unreadable,
    WorkerProcess,
)
from moldau.runtime.worker_processes.thread import IDLE_S, WorkerThread

if TYPE_CHECKING:
    from moldau.log.cleaning.job import CleaningJob, CleaningResult

SILENCE_MAX_S: Final = 600.0
"""A working process sends a message every few seconds; one that is silent for this long counts as stuck."""
COMMAND: Final = (sys.executable, "-m", "moldau.runtime.cleaning.process_worker")


class CleaningProcess:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        idle_s: float = IDLE_S,
        silence_max_s: float = SILENCE_MAX_S,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._loop = loop
        self._silence_max_s = silence_max_s
        # Before the next job begins, the last process has ended: it writes into the same directories.
        self._process: WorkerProcess[CleaningResult | CleaningFailed] = WorkerProcess(command, end_max_s=None)
        self._thread = WorkerThread(loop, self._process, "log-cleaner", idle_s)
        self._rate = float("inf")

    @property
    def pid(self) -> int | None:
        """The id of the process, if there is one."""
        return self._process.pid

    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[CleaningResult | CleaningFailed]:
        self._rate = bytes_per_second
        done: Promise[CleaningResult | CleaningFailed] = Promise()
        not_started = self._process.start()  # before this returns, so that `abandon` finds a process
        if not_started is not None:
            self._loop.call_soon(done.complete, _failed(not_started))
        else:
            self._thread.run(
                partial(self._ask, job),
                lambda outcome: done.complete(_failed(outcome) if isinstance(outcome, NoAnswer) else outcome),
            )
        return done

    def set_rate(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second

    def abandon(self) -> None:
        self._process.abandon()

    def close(self) -> None:
        self._process.abandon(wait_s=END_MAX_S)
        self._thread.close()

    def _ask(self, job: CleaningJob) -> CleaningResult | CleaningFailed | NoAnswer:
        rate = self._rate

        def new_rate() -> CleaningRequest | None:
            nonlocal rate
            if rate == self._rate:
                return None
            rate = self._rate
            return CleaningRequest(rate)

        return self._process.ask(CleaningRequest(rate, job), self._silence_max_s, new_rate)


def _failed(outcome: NoAnswer) -> CleaningFailed:
    match outcome:
        case NotStarted(what, why, is_shortage):
            return CleaningFailed(f"no {what} could be started: {why}", is_shortage=is_shortage)
        case Silent(seconds):
            return CleaningFailed(f"its process was silent for {seconds:.0f} s")
        case Died():
            return CleaningFailed("its process died")
        case Unreadable(error):
            return CleaningFailed(f"its result cannot be read: {error}")
    return CleaningFailed(f"its process failed with {outcome.error}")
