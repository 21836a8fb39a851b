"""The processes that evaluate views. A few of them share the work of all views of this node, in the order of asking.

A thread for each process exchanges messages with it; waiting for a socket does not block the loop. A process that works
too long on one piece is killed, and so is one that dies of its memory limit: that piece has failed, the next one gets a
new process. Work whose process could not start, or was killed by somebody else, is not to blame and may be tried again.
They are started for the first piece of work and ended after they were idle for a while.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.base import limits, own_configs
from moldau.base.broker_configs import broker_value
from moldau.base.config_def import BrokerLayers
from moldau.base.promise import Promise
from moldau.log.reading import Slice
from moldau.platforms.process_limits import has_used_up_cpu_time, was_killed
from moldau.runtime.views.ports import ViewOrder, view_order
from moldau.views.definition import ViewDefinition
from moldau.views.jobs import Evaluated, ViewFailed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

IDLE_S: Final = 60.0
SILENCE_MAX_S: Final = 300.0
"""A worker that says nothing for so long is stuck: its disk, or a machine without time for it."""
END_S: Final = 1.0
COMMAND: Final = (sys.executable, "-m", "moldau.runtime.views.process_worker")

Result = Evaluated | ViewFailed
ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "2"}
"""The C library reserves 64 MiB of addresses for each arena, one for each thread that allocates at the same time: they
would use up the limit of a worker's memory."""


class _Work(NamedTuple):
    order: ViewOrder
    records: Slice
    """Keeps the file open, so that no other file gets its inode."""
    done: Promise[Result]


class ViewWorkers:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        workers: int = limits.VIEW_WORKERS,
        idle_s: float = IDLE_S,
        cpu_max_s: float = limits.VIEW_CPU_SECONDS,
        memory_bytes: int = limits.VIEW_MEMORY_BYTES,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._loop = loop
        self._idle_s = idle_s
        self._waiting: deque[_Work] = deque()
        self._idle = [_Worker([*command, str(memory_bytes), str(cpu_max_s)], cpu_max_s) for _ in range(workers)]
        """The worker that was busy last is at the end: it gets the next work, and others can end."""
        self._all = tuple(self._idle)
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that run."""
        return [worker.process.pid for worker in self._all if worker.process is not None]

    def evaluate(self, definition: ViewDefinition, records: Slice, partition: int) -> Promise[Result]:
        work = _Work(view_order(definition, records, partition), records, Promise())
        self._waiting.append(work)
        self._start()
        return work.done

    def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        for worker in self._all:
            if worker in self._idle:
                worker.kill()
            elif worker.process is not None:
                worker.process.kill()  # its thread sees that the connection ends

    def _start(self) -> None:
        while self._waiting and self._idle and not self._is_closed:
            worker, work = self._idle.pop(), self._waiting.popleft()
            if worker.idle_timer is not None:
                worker.idle_timer.cancel()
            threading.Thread(target=self._run, args=(worker, work), name="view-worker", daemon=True).start()

    def _run(self, worker: _Worker, work: _Work) -> None:
        """In a thread: do this piece of work."""
        result = worker.run(work.order)
        with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
            self._loop.call_soon_threadsafe(self._on_result, worker, work, result)

    def _on_result(self, worker: _Worker, work: _Work, result: Result) -> None:
        self._idle.append(worker)
        if self._is_closed:
            return
        worker.idle_timer = self._loop.call_later(self._idle_s, worker.kill)
        self._start()
        work.done.complete(result)


def view_workers(
    loop: asyncio.AbstractEventLoop, configs: BrokerLayers, command: Sequence[str] = COMMAND
) -> ViewWorkers:
    """The workers of a broker, with the limits that its configs say."""

    def whole(name: str) -> int:
        value = broker_value(name, configs)
        assert isinstance(value, int), "its type"
        return value

    return ViewWorkers(
        loop,
        workers=whole(own_configs.VIEW_WORKERS),
        cpu_max_s=whole(own_configs.VIEW_CPU_SECONDS),
        memory_bytes=whole(own_configs.VIEW_MEMORY_BYTES),
        command=command,
    )


class _Worker:
    """One process, started when it is needed. Only one thread at a time uses it."""

    def __init__(self, command: Sequence[str], cpu_max_s: float) -> None:
        self._command = command
        self._too_slow = ViewFailed(f"it took more than {cpu_max_s:g} s of CPU time")
        self._is_ready = False
        """Whether the process has said so."""
        self._has_worked = False
        self.process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self.idle_timer: asyncio.TimerHandle | None = None

    def run(self, order: ViewOrder) -> Result:
        has_worked = self._has_worked
        result = self._exchange(order)
        if has_worked and isinstance(result, ViewFailed) and not result.is_retriable and result != self._too_slow:
            return self._exchange(order)  # in a new process: what earlier work has left in its memory is not to blame
        return result

    def _exchange(self, order: ViewOrder) -> Result:
        try:
            connection = self._connect()
        except OSError as refused:
            return ViewFailed(f"no worker could be started: {refused}", is_retriable=True)
        try:
            connection.send(order)
            while connection.poll(SILENCE_MAX_S):
                result: Result | None = connection.recv()
                self._is_ready = True
                if isinstance(result, ViewFailed) and not result.is_retriable:
                    self.kill()  # it may hold much memory
                if result is not None:
                    self._has_worked = self.process is not None
                    return result
            self.kill()
            return ViewFailed(f"its worker said nothing for {SILENCE_MAX_S:g} s and was stopped", is_retriable=True)
        except (EOFError, OSError):
            return self._death()

    def _death(self) -> ViewFailed:
        """Why the process has died, and whether its work is to blame for that."""
        is_ready, process = self._is_ready, self.process
        if process is not None:
            with suppress(subprocess.TimeoutExpired):  # it is dying
                process.wait(END_S)
        code = self.kill()
        if not is_ready:
            return ViewFailed(f"its worker died before it was ready, with code {code}", is_retriable=True)
        if has_used_up_cpu_time(code):
            return self._too_slow
        if was_killed(code):
            return ViewFailed("its worker was killed: the machine may be short of memory", is_retriable=True)
        return ViewFailed(f"its worker died with code {code}; it may need more memory than a worker has")

    def _connect(self) -> Connection:
        process = self.process
        if process is not None and process.poll() is not None:
            self.kill()
        if self._connection is None:
            from multiprocessing.connection import Connection  # imported only where somebody reads a view

            ours, theirs = socket.socketpair()
            with ours, theirs:
                # In a session of its own, so that Ctrl-C goes only to the broker.
                self.process = subprocess.Popen(
                    self._command, stdin=theirs.fileno(), start_new_session=True, env={**os.environ, **ENVIRONMENT}
                )
                self._connection = Connection(ours.detach())
        return self._connection

    def kill(self) -> int | None:
        """End the process; return the code with which it has ended."""
        process, self.process = self.process, None
        connection, self._connection = self._connection, None
        self._is_ready = self._has_worked = False
        if process is not None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        if connection is not None:
            with suppress(OSError):
                connection.close()
        return None if process is None else process.returncode
