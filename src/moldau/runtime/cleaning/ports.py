"""Who does the cleaner's work: reads a log and writes it anew beside itself. `CleansInThread` does it by the node's own
files, `process.py` in a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.promise import Promise
from moldau.log.files import Files

if TYPE_CHECKING:
    from moldau.log.cleaning.job import Cleaned, CleaningJob
    from moldau.runtime.housekeeping import RunInThread


class CleaningFailed(NamedTuple):
    """Why a job came to nothing. The log is as it was."""

    why: str
    is_corrupt: bool = False
    """The log cannot be read: there is no use in trying again."""
    is_shortage: bool = False
    """Room on the disk or file descriptors ran out."""


class Order(NamedTuple):
    """What a broker says to a process that cleans: do this; or, while it does: go at this rate from now on."""

    bytes_per_second: float
    job: CleaningJob | None = None


class Cleans(Protocol):
    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[Cleaned | CleaningFailed]:
        """One job at a time."""
        ...

    def set_rate(self, bytes_per_second: float) -> None:
        """Also for the job that runs."""
        ...

    def abandon(self) -> None:
        """The job that runs is not wanted any more: it fails soon."""
        ...

    def close(self) -> None:
        """Nothing will be asked for again, nothing is left running."""
        ...


def failure(fault: StorageFault | MalformedData) -> CleaningFailed:
    if isinstance(fault, MalformedData):
        return CleaningFailed(str(fault), is_corrupt=True)
    return CleaningFailed(str(fault), is_shortage=fault.is_shortage)


class CleansInThread:
    """By the files of the node itself, where it does whatever waits for the disk. It knows no haste and no limit: for
    simulations and tests."""

    def __init__(self, files: Files, run_in_thread: RunInThread) -> None:
        self._files = files
        self._run_in_thread = run_in_thread

    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[Cleaned | CleaningFailed]:
        from moldau.log.cleaning.clean import clean  # only a broker with something to clean pays for it

        outcome: list[Cleaned | CleaningFailed] = []

        def work() -> None:
            try:
                outcome.append(clean(self._files, job, lambda _: None))
            except (StorageFault, MalformedData) as fault:
                outcome.append(failure(fault))

        return self._run_in_thread(work).map(lambda _: outcome[0])

    def set_rate(self, bytes_per_second: float) -> None:
        """There is none."""

    def abandon(self) -> None:
        """What was begun is finished, and nobody looks at it."""

    def close(self) -> None:
        """Nothing runs that could be left running."""
