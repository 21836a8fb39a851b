"""Cleans logs in a separate process, because a thread that computes would block this process's loop (GIL).

The process is started for the first job and ended after it was idle for a while. A thread of the broker exchanges
messages with it; waiting for a socket does not block the loop. If the process dies, the job has failed, and the next
job gets a new process.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from moldau.base.promise import Promise
from moldau.runtime.cleaning.ports import CleaningFailed, CleaningRequest

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from moldau.log.cleaning.job import CleaningJob, CleaningResult

IDLE_S: Final = 60.0
SILENCE_MAX_S: Final = 600.0
"""A working process sends a message every few seconds; one that is silent for this long counts as stuck."""
END_S: Final = 1.0
RATE_CHECK_S: Final = 0.5
"""How often the thread checks whether the rate was changed."""
SHORTAGES: Final = frozenset((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE))
"""Why no process can be started now: there are too many, or memory or file descriptors ran out."""
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
        self._connection: Connection | None = None
        """Only the thread uses it while a job runs."""
        self._job: Promise[CleaningResult | CleaningFailed] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._rate = float("inf")

    @property
    def pid(self) -> int | None:
        """The id of the process, if there is one."""
        return None if self._process is None else self._process.pid

    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[CleaningResult | CleaningFailed]:
        assert self._job is None, "one job at a time"
        self._rate = bytes_per_second
        done: Promise[CleaningResult | CleaningFailed] = Promise()
        self._job = done
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        try:
            process, connection = self._start_process()
            arguments = (job, process, connection)
            threading.Thread(target=self._run_job, args=arguments, name="log-cleaner", daemon=True).start()
        except OSError as refused:
            failed = CleaningFailed(f"no process could be started: {refused}", is_shortage=refused.errno in SHORTAGES)
            self._loop.call_soon(self._on_finished, failed)
        except RuntimeError as refused:
            failed = CleaningFailed(f"no thread could be started: {refused}", is_shortage=True)
            self._loop.call_soon(self._on_finished, failed)
        return done

    def set_rate(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second

    def abandon(self) -> None:
        if self._job is not None and self._process is not None:
            self._process.kill()

    def close(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._job is None:
            self._end()
        elif self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # it is blocked by the disk, and ends when the disk responds
                self._process.wait(END_S)

    def _start_process(self) -> tuple[subprocess.Popen[bytes], Connection]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None or self._connection is None:
            from multiprocessing.connection import Connection  # imported only by brokers that clean something

            ours, theirs = socket.socketpair()
            with ours, theirs:
                # In a session of its own, so that Ctrl-C goes only to the broker.
                self._process = subprocess.Popen(self._command, stdin=theirs.fileno(), start_new_session=True)
                self._connection = Connection(ours.detach())
        return self._process, self._connection

    def _end(self) -> None:
        """End the process. Only while it is idle: it then ends at once."""
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    # --- in a thread, while a job runs ----------------------------------------------------------------------------

    def _run_job(self, job: CleaningJob, process: subprocess.Popen[bytes], connection: Connection) -> None:
        try:
            outcome = self._await_result(job, connection)
        except TimeoutError:
            outcome = CleaningFailed(f"its process was silent for {self._silence_max_s:.0f} s")
            process.kill()
            process.wait()
        except (EOFError, OSError):
            outcome = CleaningFailed("its process died")
            process.wait()
        except Exception as failed:  # no memory for the result, or bytes that are none
            outcome = CleaningFailed(f"its result cannot be read: {type(failed).__name__}")
            process.kill()
            process.wait()
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
            self._loop.call_soon_threadsafe(self._on_finished, outcome)

    def _await_result(self, job: CleaningJob, connection: Connection) -> CleaningResult | CleaningFailed:
        rate = self._rate
        connection.send(CleaningRequest(rate, job))
        last_message_s = time.monotonic()
        while True:
            if connection.poll(min(RATE_CHECK_S, self._silence_max_s)):
                message: CleaningResult | CleaningFailed | None = connection.recv()
                if message is not None:
                    return message
                last_message_s = time.monotonic()
            elif time.monotonic() - last_message_s > self._silence_max_s:
                raise TimeoutError
            if rate != self._rate:
                rate = self._rate
                connection.send(CleaningRequest(rate))

    # --- in the loop ------------------------------------------------------------------------------------------------

    def _on_finished(self, outcome: CleaningResult | CleaningFailed) -> None:
        done, self._job = self._job, None
        assert done is not None, "a job ended twice"
        if self._process is not None:
            has_ended = self._process.poll() is not None
            self._idle_timer = self._loop.call_later(0 if has_ended else self._idle_s, self._end)
        done.complete(outcome)
