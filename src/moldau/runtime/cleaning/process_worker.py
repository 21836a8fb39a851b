"""The process that cleans logs for a broker: `python -m moldau.runtime.cleaning.process_worker`.

Its standard input is a socket: there it is told what to do, one job at a time, and says what came of it. It lets others
go first, keeps to the rate it is given, and is gone as soon as the socket's other end is: so it never outlives
its broker, however that died. What it writes is no part of any log until the broker says so.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from moldau.base.errors import MalformedData, StorageFault
from moldau.log.files import DiskFiles
from moldau.platforms.scheduling import lower_priority, set_oom_score
from moldau.runtime.cleaning.ports import CleaningFailed, Order, failure

if TYPE_CHECKING:
    from moldau.log.cleaning.job import Cleaned, CleaningJob

NICENESS: Final = 10
DIES_FIRST: Final = 500
"""Where memory runs out, Linux is to end this process and not its broker: that costs a job and nothing else."""
SIGN_OF_LIFE_S: Final = 5.0
SLEEP_MAX_S: Final = 0.25
"""At a time: a higher rate takes effect soon."""


class Pace:
    """Holds back whoever reads or writes faster than so many bytes a second."""

    def __init__(self, elapsed_s: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._elapsed_s = elapsed_s
        self._sleep = sleep
        self.set(float("inf"))

    def set(self, bytes_per_second: float) -> None:
        self._rate = max(bytes_per_second, 1.0)
        self._begun_s = self._elapsed_s()
        self._spent = 0

    def spend(self, size: int) -> None:
        self._spent += size
        while (ahead_s := self._spent / self._rate - (self._elapsed_s() - self._begun_s)) > 0:
            self._sleep(min(ahead_s, SLEEP_MAX_S))


class Worker:
    def __init__(self, talk: Connection) -> None:
        self._talk = talk
        self._pace = Pace(time.monotonic, self._rest)
        self._jobs: SimpleQueue[CleaningJob] = SimpleQueue()
        self._told_s = time.monotonic()

    def run(self) -> None:
        """Until the input ends, which ends the process from wherever it is."""
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            self._tell(self._cleaned(self._jobs.get()))

    def _listen(self) -> None:
        try:
            while True:
                order: Order = self._talk.recv()
                self._pace.set(order.bytes_per_second)
                if order.job is not None:
                    self._jobs.put(order.job)
        except (EOFError, OSError):
            os._exit(0)

    def _cleaned(self, job: CleaningJob) -> Cleaned | CleaningFailed:
        from moldau.log.cleaning.clean import clean

        try:
            return clean(DiskFiles(), job, self._passed)
        except (StorageFault, MalformedData) as fault:
            return failure(fault)

    def _passed(self, size: int) -> None:
        """So many bytes were read or written."""
        self._pace.spend(size)
        self._tell_of_life()

    def _rest(self, seconds: float) -> None:
        time.sleep(seconds)
        self._tell_of_life()

    def _tell_of_life(self) -> None:
        if time.monotonic() - self._told_s > SIGN_OF_LIFE_S:
            self._tell(None)

    def _tell(self, what: Cleaned | CleaningFailed | None) -> None:
        """None says only that it goes on."""
        self._told_s = time.monotonic()
        self._talk.send(what)


def main() -> None:
    lower_priority(NICENESS)
    set_oom_score(DIES_FIRST)
    Worker(Connection(sys.stdin.fileno())).run()


if __name__ == "__main__":
    main()
