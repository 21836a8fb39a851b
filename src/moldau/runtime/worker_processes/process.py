"""A process that works for the broker, as the broker sees it.

They exchange pickled messages by a socket, which is the process' standard input. The broker sends a request and gets
one answer; None before it only shows that the process is alive. The process ends when the socket is closed, so it never
outlives its broker. If it gives no answer it is ended, and the next request gets another one.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from moldau.runtime.worker_processes.serving import Unexpected

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Answer = TypeVar("Answer")

END_MAX_S: Final = 1.0
"""A process that is killed ends at once, unless a disk blocks it."""
FOLLOW_UP_S: Final = 0.5
SHORTAGES: Final = frozenset((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE))
"""Why no process can be started now: there are too many, or memory or file descriptors ran out."""


class NotStarted(NamedTuple):
    what: str
    """The process, or the thread that would wait for it."""
    why: str
    is_shortage: bool


class Silent(NamedTuple):
    seconds: float


class Died(NamedTuple):
    code: int | None
    was_ready: bool
    """Whether it had sent a message before."""


class Unreadable(NamedTuple):
    """There was no memory for the answer, or it was none."""

    error: str


NoAnswer = NotStarted | Silent | Died | Unreadable | Unexpected


class WorkerProcess(Generic[Answer]):
    """Only one thread at a time gives it requests; the event loop may close it meanwhile."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        end_max_s: float | None = END_MAX_S,
    ) -> None:
        """`environment` is added to the broker's. `end_max_s` limits how long a thread waits for the end of a process
        that was killed; None: it waits as long as that takes."""
        self._command = command
        self._environment = environment or {}
        self._end_max_s = end_max_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        """None while no process can be asked."""
        self._is_ready = False
        self.has_answered = False
        """Whether this process has done other work before."""
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The id of the process, if there is one."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    def start(self) -> NotStarted | None:
        """Start the process, unless it is running."""
        if self._process is not None and self._process.poll() is not None:
            self._disconnect()
        try:
            if self._connection is None:
                self._connection = self._spawn()
            if self._is_closed:  # looked at after the start, as `close` looks for a process after it has set this
                raise ConnectionAbortedError("the broker stops")
        except OSError as refused:
            self.kill()
            return NotStarted("process", str(refused), refused.errno in SHORTAGES)
        return None

    def _spawn(self) -> Connection:
        from multiprocessing.connection import Connection  # imported only by brokers that have such a process

        self._process = None
        environment = {**os.environ, **self._environment}
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # In a session of its own, so that Ctrl-C goes only to the broker.
            self._process = subprocess.Popen(
                self._command, stdin=theirs.fileno(), start_new_session=True, env=environment
            )
            return Connection(ours.detach())

    # --- in a thread ------------------------------------------------------------------------------------------------

    def ask(
        self, request: object, silence_max_s: float, follow_up: Callable[[], object] | None = None
    ) -> Answer | NoAnswer:
        """Send a request to the started process and wait for its answer. Meanwhile send what `follow_up` returns,
        unless that is None."""
        assert self._connection is not None, "the process was not started"
        try:
            self._connection.send(request)
            answer = self._await_answer(self._connection, silence_max_s, follow_up)
        except (EOFError, OSError):
            was_ready = self._is_ready
            return Died(self.kill(END_MAX_S), was_ready)
        except Exception as failed:
            self.kill()
            return Unreadable(type(failed).__name__)
        if isinstance(answer, Silent | Unexpected):
            self.kill()
        else:
            self.has_answered = True
        return answer

    def _await_answer(
        self, connection: Connection, silence_max_s: float, follow_up: Callable[[], object] | None
    ) -> Answer | Silent | Unexpected:
        last_message_s = time.monotonic()
        while (left_s := last_message_s + silence_max_s - time.monotonic()) > 0:
            if connection.poll(left_s if follow_up is None else min(left_s, FOLLOW_UP_S)):
                answer: Answer | Unexpected | None = connection.recv()
                self._is_ready = True
                if answer is not None:
                    return answer
                last_message_s = time.monotonic()
            if follow_up is not None and (more := follow_up()) is not None:
                connection.send(more)
        return Silent(silence_max_s)

    def kill(self, patience_s: float = 0) -> int | None:
        """Wait until the process ends, kill it after that time, and return the code with which it has ended."""
        process = self._process
        if process is not None and patience_s:
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
        self._disconnect()
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._end_max_s)
        self._process = None
        return None if process is None else process.returncode

    def _disconnect(self) -> None:
        """Kill the process, and do not ask it any more."""
        connection, self._connection = self._connection, None
        self._is_ready = self.has_answered = False
        if self._process is not None:
            self._process.kill()
        if connection is not None:
            with suppress(OSError):
                connection.close()

    # --- on the event loop ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End a process without work, without waiting."""
        self._disconnect()
        if self._process is not None and self._process.poll() is None:
            with suppress(RuntimeError):  # no thread: the next start reaps it
                threading.Thread(target=self._process.wait, name="worker-end", daemon=True).start()

    def abandon(self, wait_s: float = 0) -> None:
        """Kill the process during its work: the thread that waits for an answer sees the end of the connection."""
        if (process := self._process) is not None:
            process.kill()
            if wait_s:
                with suppress(subprocess.TimeoutExpired):  # a disk blocks it: it ends when that responds
                    process.wait(wait_s)

    def close(self, is_idle: bool) -> None:
        """End the process without waiting, also during its work. No process is started any more."""
        self._is_closed = True
        if is_idle:
            self.stop()
        else:
            self.abandon()
