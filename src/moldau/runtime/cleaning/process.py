"""Cleans logs in a process of its own: for whatever a thread of this one computed, its loop would have to wait.

The process is started for the first job and ended when it was idle for a while. A thread talks to it, for a socket is
waited for without holding anybody up. If the process dies, the job has failed; the next one gets a new process.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from moldau.base.promise import Promise
from moldau.runtime.cleaning.ports import CleaningFailed, Order

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from moldau.log.cleaning.job import Cleaned, CleaningJob

IDLE_S: Final = 60.0
SILENCE_MAX_S: Final = 600.0
"""A process that reads and writes says so every few seconds; one that does not for so long is taken to be stuck."""
END_S: Final = 1.0
LOOK_S: Final = 0.5
"""How often the thread looks whether another rate was set."""
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
        self._idle_s = idle_s
        self._silence_max_s = silence_max_s
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._talk: Connection | None = None
        """Belongs to the thread while a job runs."""
        self._job: Promise[Cleaned | CleaningFailed] | None = None
        self._idling: asyncio.TimerHandle | None = None
        self._rate = float("inf")

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return None if self._process is None else self._process.pid

    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[Cleaned | CleaningFailed]:
        assert self._job is None, "one job at a time"
        self._rate = bytes_per_second
        done: Promise[Cleaned | CleaningFailed] = Promise()
        self._job = done
        if self._idling is not None:
            self._idling.cancel()
        try:
            process, talk = self._started()
        except OSError as refused:
            self._loop.call_soon(self._finished, CleaningFailed(f"no process could be started: {refused}"))
            return done
        threading.Thread(target=self._see_to, args=(job, process, talk), name="log-cleaner", daemon=True).start()
        return done

    def set_rate(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second

    def abandon(self) -> None:
        if self._job is not None and self._process is not None:
            self._process.kill()

    def close(self) -> None:
        if self._idling is not None:
            self._idling.cancel()
        if self._job is None:
            self._end()
        elif self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # the disk holds it: it goes when the disk lets go
                self._process.wait(END_S)

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None or self._talk is None:
            from multiprocessing.connection import Connection  # a broker that compacts nothing does without

            ours, theirs = socket.socketpair()
            with ours, theirs:
                # In a session of its own: a Ctrl-C is the broker's to heed.
                self._process = subprocess.Popen(self._command, stdin=theirs.fileno(), start_new_session=True)
                self._talk = Connection(ours.detach())
        return self._process, self._talk

    def _end(self) -> None:
        """Only while it is idle: it then goes at once."""
        if self._process is not None and self._talk is not None:
            self._talk.close()
            self._process.kill()
            self._process.wait()
        self._process = self._talk = None

    # --- in a thread, while a job runs ----------------------------------------------------------------------------

    def _see_to(self, job: CleaningJob, process: subprocess.Popen[bytes], talk: Connection) -> None:
        try:
            outcome = self._answered(job, talk)
        except TimeoutError:
            outcome = CleaningFailed(f"its process was silent for {self._silence_max_s:.0f} s")
            process.kill()
            process.wait()
        except (EOFError, OSError):
            outcome = CleaningFailed("its process died")
            process.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(self._finished, outcome)

    def _answered(self, job: CleaningJob, talk: Connection) -> Cleaned | CleaningFailed:
        rate = self._rate
        talk.send(Order(rate, job))
        heard_s = time.monotonic()
        while True:
            if talk.poll(min(LOOK_S, self._silence_max_s)):
                answer: Cleaned | CleaningFailed | None = talk.recv()
                if answer is not None:
                    return answer
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > self._silence_max_s:
                raise TimeoutError
            if rate != self._rate:
                rate = self._rate
                talk.send(Order(rate))

    # --- in the loop ------------------------------------------------------------------------------------------------

    def _finished(self, outcome: Cleaned | CleaningFailed) -> None:
        done, self._job = self._job, None
        assert done is not None, "a job ends once"
        if self._process is not None:
            is_over = self._process.poll() is not None
            self._idling = self._loop.call_later(0 if is_over else self._idle_s, self._end)
        done.complete(outcome)
