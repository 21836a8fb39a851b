"""The process that evaluates views for a broker, and conditions of searches for a console:
`python -m moldau.runtime.views.process_worker BYTES SECONDS`.

Its standard input is a socket, by which it receives work, one piece at a time, and sends the results. It may use so
much memory in addition to what it has loaded, and so much CPU time for one piece of work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.log.cleaning.pieces import PADDING
from moldau.platforms.process_limits import limit_cpu_time, limit_memory
from moldau.runtime.views.ports import NEEDS_DUCKDB, BatchesTask, ViewTask, evaluate_or_fail, match_or_fail
from moldau.runtime.views.queues import Result
from moldau.runtime.worker_processes.serving import answer_requests, serve
from moldau.views.jobs import Evaluated, ViewFailed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

NICENESS: Final = 5
"""Clients of the broker come first."""
BUFFER_BYTES: Final = 9 << 20
"""Kept from one piece of work to the next: new memory would cost as much as the work."""


class Evaluator:
    def __init__(self, memory_bytes: int, cpu_seconds: float) -> None:
        # Arrow's own allocator reserves a GiB of addresses at its first use, which may be all that the limit allows.
        os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
        from moldau.views.engine import Engine

        self._engine = Engine()
        limit_memory(memory_bytes)
        self._cpu_seconds = cpu_seconds
        self._too_much_memory = f"evaluating the view needs more than {memory_bytes >> 20} MiB of memory"
        self._buffer = bytearray(BUFFER_BYTES)

    def evaluate(self, task: ViewTask | BatchesTask) -> Result:
        limit_cpu_time(self._cpu_seconds)
        try:
            result = match_or_fail(self._engine, task) if isinstance(task, BatchesTask) else self._of_file(task)
        except MemoryError:
            result = ViewFailed(self._too_much_memory, is_divisible=True)
        limit_cpu_time(0)
        self._engine.is_fresh = False
        return result

    def _of_file(self, task: ViewTask) -> Evaluated | ViewFailed:
        if len(self._buffer) < task.length + len(PADDING):
            self._buffer = bytearray(task.length + len(PADDING))
        result = _read(task, self._buffer) or evaluate_or_fail(
            self._engine, task.definition, self._buffer, task.partition, task.length
        )
        if len(self._buffer) > BUFFER_BYTES:  # one long batch
            self._buffer = bytearray(BUFFER_BYTES)
        return result


def work(connection: Connection) -> None:
    evaluate: Callable[[ViewTask | BatchesTask], Result]
    try:
        evaluate = Evaluator(int(sys.argv[1]), float(sys.argv[2])).evaluate
    except ImportError:
        evaluate = _refuse
    connection.send(None)  # it is ready
    answer_requests(connection.recv, evaluate, connection.send)


def _refuse(_: ViewTask | BatchesTask) -> ViewFailed:
    return ViewFailed(NEEDS_DUCKDB)


def _read(task: ViewTask, buffer: bytearray) -> ViewFailed | None:
    """Read all of it into the buffer, or say why that is not possible."""
    done, wanted = 0, memoryview(buffer)[: task.length]
    try:
        with open(task.path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) != task.file_id:
                return ViewFailed("the file was replaced", is_retriable=True)
            file.seek(task.position)
            while done < task.length:
                count = file.readinto(wanted[done:])
                if not count:
                    return ViewFailed("the file is shorter than it was", is_retriable=True)
                done += count
    except OSError as failed:
        return ViewFailed(f"the file cannot be read: {failed.strerror}", is_retriable=True)
    return None


def main() -> None:
    serve(NICENESS, work)


if __name__ == "__main__":
    main()
