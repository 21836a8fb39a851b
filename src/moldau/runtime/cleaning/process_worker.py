"""The process that cleans logs for a broker: `python -m moldau.runtime.cleaning.process_worker`.

Its standard input is a socket, by which it receives jobs, one at a time, and sends their results. It runs at low
priority, keeps to its rate limit, and ends as soon as the other end of the socket is closed, also during a job. What it
writes becomes part of a log only when the broker swaps it in.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from moldau.base.errors import MalformedData, StorageFault
from moldau.log.files import DiskFiles
from moldau.runtime.cleaning.ports import CleaningFailed, CleaningRequest, failure
from moldau.runtime.worker_processes.serving import answer_requests, serve

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from moldau.log.cleaning.job import CleaningJob, CleaningResult

NICENESS: Final = 10
KEEP_ALIVE_S: Final = 5.0
SLEEP_MAX_S: Final = 0.25
"""The longest single sleep, so that a higher rate takes effect soon."""


class Pace:
    """Limits reading and writing to a rate in bytes per second."""

    def __init__(self, elapsed_s: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._elapsed_s = elapsed_s
        self._sleep = sleep
        self.set(float("inf"))

    def set(self, bytes_per_second: float) -> None:
        self._rate = max(bytes_per_second, 1.0)
        self._start_s = self._elapsed_s()
        self._spent = 0

    def spend(self, size: int) -> None:
        self._spent += size
        while (ahead_s := self._spent / self._rate - (self._elapsed_s() - self._start_s)) > 0:
            self._sleep(min(ahead_s, SLEEP_MAX_S))


class Worker:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pace = Pace(time.monotonic, self._pause)
        self._jobs: SimpleQueue[CleaningJob] = SimpleQueue()
        self._last_message_s = time.monotonic()

    def run(self) -> None:
        """Clean jobs until the input ends, which ends the process at once."""
        threading.Thread(target=self._listen, daemon=True).start()
        answer_requests(self._jobs.get, self._clean, self._send)

    def _listen(self) -> None:
        try:
            while True:
                request: CleaningRequest = self._connection.recv()
                self._pace.set(request.bytes_per_second)
                if request.job is not None:
                    self._jobs.put(request.job)
        except (EOFError, OSError):
            os._exit(0)
        except BaseException:  # a request of another version, or no memory: without its thread this process is useless
            traceback.print_exc()
            os._exit(1)

    def _clean(self, job: CleaningJob) -> CleaningResult | CleaningFailed:
        from moldau.log.cleaning.clean import clean

        try:
            return clean(DiskFiles(), job, self._on_bytes)
        except (StorageFault, MalformedData) as fault:
            return failure(fault)

    def _on_bytes(self, size: int) -> None:
        """Count bytes that were read or written, and wait if that was too fast."""
        self._pace.spend(size)
        self._send_keep_alive()

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
        self._send_keep_alive()

    def _send_keep_alive(self) -> None:
        if time.monotonic() - self._last_message_s > KEEP_ALIVE_S:
            self._send(None)

    def _send(self, result: object) -> None:
        """Send a result; None only shows that the job is still running."""
        self._last_message_s = time.monotonic()
        self._connection.send(result)


def main() -> None:
    serve(NICENESS, lambda connection: Worker(connection).run())


if __name__ == "__main__":
    main()
