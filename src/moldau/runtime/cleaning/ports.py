"""The interface of the worker that reads a log and writes its cleaned segments beside it. `ThreadSegmentCleaner` works
in a thread with the node's own files, `process.py` in a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.promise import Promise
from moldau.log.files import Files

if TYPE_CHECKING:
    from moldau.base.ports import RunInThread
    from moldau.log.cleaning.job import CleaningJob, CleaningResult


class CleaningFailed(NamedTuple):
    """Why a job failed. It has not changed the log."""

    why: str
    is_corrupt: bool = False
    """The log is damaged: a retry would fail again."""
    is_shortage: bool = False
    """Disk space, file descriptors, memory or processes ran out: a retry may succeed later."""


class CleaningRequest(NamedTuple):
    """A message to the cleaning process: a job with its rate, or, without a job, a new rate for the running one."""

    bytes_per_second: float
    job: CleaningJob | None = None


class SegmentCleaner(Protocol):
    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[CleaningResult | CleaningFailed]:
        """Start a job. Only one may run at a time."""
        ...

    def set_rate(self, bytes_per_second: float) -> None:
        """Change the rate of the running job."""
        ...

    def abandon(self) -> None:
        """End the running job early, if possible: its result is no longer needed."""
        ...

    def close(self) -> None:
        """Stop everything; no more jobs will come."""
        ...


def failure(fault: StorageFault | MalformedData) -> CleaningFailed:
    if isinstance(fault, MalformedData):
        return CleaningFailed(str(fault), is_corrupt=True)
    return CleaningFailed(str(fault), is_shortage=fault.is_shortage)


class ThreadSegmentCleaner:
    """Cleans in the node's thread for disk work, with the node's own files and without a rate limit: for simulations
    and tests."""

    def __init__(self, files: Files, run_in_thread: RunInThread) -> None:
        self._files = files
        self._run_in_thread = run_in_thread

    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[CleaningResult | CleaningFailed]:
        from moldau.log.cleaning.clean import clean  # loads numpy

        outcome: list[CleaningResult | CleaningFailed] = []

        def work() -> None:
            try:
                outcome.append(clean(self._files, job, lambda _: None))
            except (StorageFault, MalformedData) as fault:
                outcome.append(failure(fault))

        return self._run_in_thread(work).map(lambda _: outcome[0])

    def set_rate(self, bytes_per_second: float) -> None:
        """Do nothing: there is no rate limit."""

    def abandon(self) -> None:
        """Do nothing: the job finishes, and its result is ignored."""

    def close(self) -> None:
        """Do nothing: there is no process to stop."""
