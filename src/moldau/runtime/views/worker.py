"""One process that evaluates views, as the broker sees it."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from moldau.platforms.process_limits import has_used_up_cpu_time, was_killed
from moldau.runtime.views.ports import ViewTask
from moldau.views.jobs import Evaluated, ViewFailed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SILENCE_MAX_S: Final = 300.0
"""A worker that says nothing for so long is stuck: its disk, or a machine without time for it."""
END_S: Final = 1.0
ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "2"}
"""The C library reserves 64 MiB of addresses for each arena, one for each thread that allocates at the same time: they
would use up the limit of a worker's memory."""


class Worker:
    """Its process is started when it is needed. Only one thread at a time gives it work; the event loop may close it
    meanwhile."""

    def __init__(self, command: Sequence[str], cpu_max_s: float) -> None:
        self._command = command
        self._too_slow = ViewFailed(
            f"evaluating the view took more than {cpu_max_s:g} s of CPU time", is_divisible=True
        )
        self._is_ready = False
        """Whether the process has said so."""
        self._has_worked = False
        self._is_closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def run(self, task: ViewTask) -> Evaluated | ViewFailed:
        has_worked = self._has_worked
        try:
            result = self._exchange(task)
            if has_worked and isinstance(result, ViewFailed) and not result.is_retriable and result != self._too_slow:
                result = self._exchange(task)  # what earlier work has left in the memory of a process is not to blame
        except Exception as failed:  # no memory for the result, or bytes that are none
            self._kill()
            return ViewFailed(f"the view's worker failed: {type(failed).__name__}", is_retriable=True)
        return result

    def _exchange(self, task: ViewTask) -> Evaluated | ViewFailed:
        try:
            connection = self._connect()
        except OSError as refused:
            self._kill()
            return ViewFailed(f"no worker could be started: {refused}", is_retriable=True)
        try:
            connection.send(task)
            while connection.poll(SILENCE_MAX_S):
                result: Evaluated | ViewFailed | None = connection.recv()
                self._is_ready = True
                if isinstance(result, ViewFailed) and not result.is_retriable:
                    self._kill()  # it may hold much memory
                if result is not None:
                    self._has_worked = self._process is not None
                    return result
            self._kill()
            why = f"the view's worker said nothing for {SILENCE_MAX_S:g} s and was stopped"
            return ViewFailed(why, is_retriable=True)
        except (EOFError, OSError):
            return self._reap()

    def _reap(self) -> ViewFailed:
        """Wait for the end of a dying process. Return why it has ended, and whether its work is to blame for that."""
        is_ready, process = self._is_ready, self._process
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        code = self._kill()
        if not is_ready:
            return ViewFailed(f"the view's worker died before it was ready, with code {code}", is_retriable=True)
        if has_used_up_cpu_time(code):
            return self._too_slow
        if was_killed(code):
            return ViewFailed("the view's worker was killed: the machine may be short of memory", is_retriable=True)
        return ViewFailed(
            f"the view's worker died with code {code}; it may need more memory than a worker has", is_divisible=True
        )

    def _connect(self) -> Connection:
        process = self._process
        if process is not None and process.poll() is not None:
            self._kill()
        if self._connection is None:
            from multiprocessing.connection import Connection  # imported only where somebody reads a view

            ours, theirs = socket.socketpair()
            with ours, theirs:
                # In a session of its own, so that Ctrl-C goes only to the broker.
                self._process = subprocess.Popen(
                    self._command, stdin=theirs.fileno(), start_new_session=True, env={**os.environ, **ENVIRONMENT}
                )
                self._connection = Connection(ours.detach())
        if self._is_closed:  # looked at after the start, as `close` looks for a process after it has set this
            raise ConnectionAbortedError("the broker stops")
        return self._connection

    def _kill(self) -> int | None:
        """End the process; return the code with which it has ended. It may wait for that: not on the event loop."""
        process = self._detach()
        if process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        return process.returncode

    def _detach(self) -> subprocess.Popen[bytes] | None:
        """Kill the process and forget it; return it as long as nobody knows that it has ended."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        self._is_ready = self._has_worked = False
        if process is not None:
            process.kill()
        if connection is not None:
            with suppress(OSError):
                connection.close()
        return process

    def stop(self) -> None:
        """End the process of a worker without work, without waiting."""
        process = self._detach()
        if process is not None and process.poll() is None:
            with suppress(RuntimeError):  # no thread: the next process that is started reaps this one
                threading.Thread(target=process.wait, name="view-worker-end", daemon=True).start()

    def close(self, is_idle: bool) -> None:
        """End the process without waiting, also during its work: the thread that waits for a result sees the end of the
        connection. No process is started any more."""
        self._is_closed = True
        if is_idle:
            self.stop()
        elif (process := self._process) is not None:
            process.kill()
