"""The process that evaluates views for a broker: `python -m moldau.runtime.views.process_worker BYTES SECONDS`.

Its standard input is a socket, by which it receives work, one piece at a time, and sends the results. It ends as soon
as the other end is closed, so it never outlives its broker. It may use so much memory in addition to what it has
loaded, and so much CPU time for one piece of work.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from typing import Final

from moldau.log.cleaning.pieces import PADDING
from moldau.platforms.process_limits import limit_cpu_time, limit_memory
from moldau.platforms.scheduling import lower_priority, set_oom_score
from moldau.runtime.views.ports import NEEDS_DUCKDB, ViewTask, evaluate_or_fail
from moldau.views.jobs import Evaluated, ViewFailed

NICENESS: Final = 5
"""Clients of the broker come first."""
OOM_SCORE: Final = 500
BUFFER_BYTES: Final = 9 << 20
"""Kept from one piece of work to the next: new memory would cost as much as the work."""


def serve(connection: Connection, memory_bytes: int, cpu_seconds: float) -> None:
    try:
        # Arrow's own allocator reserves a GiB of addresses at its first use, which may be all that the limit allows.
        os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
        from moldau.views.engine import Engine

        engine = Engine()
    except ImportError:
        connection.send(None)
        connection.recv()
        connection.send(ViewFailed(NEEDS_DUCKDB))
        return
    limit_memory(memory_bytes)
    too_much_memory = f"evaluating the view needs more than {memory_bytes >> 20} MiB of memory"
    buffer = bytearray(BUFFER_BYTES)
    connection.send(None)  # it is ready
    while True:
        task: ViewTask = connection.recv()
        limit_cpu_time(cpu_seconds)
        try:
            if len(buffer) < task.length + len(PADDING):
                buffer = bytearray(task.length + len(PADDING))
            result: Evaluated | ViewFailed = _read(task, buffer) or evaluate_or_fail(
                engine, task.definition, buffer, task.partition, task.length
            )
            if len(buffer) > BUFFER_BYTES:  # one long batch
                buffer = bytearray(BUFFER_BYTES)
        except MemoryError:
            connection.send(ViewFailed(too_much_memory, is_divisible=True))
            return
        except Exception as unexpected:  # a fault of ours, which the same records may cause again
            result = ViewFailed(f"evaluating the view failed with {type(unexpected).__name__}", is_divisible=True)
        limit_cpu_time(0)
        engine.is_fresh = False
        connection.send(result)


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
    lower_priority(NICENESS)
    set_oom_score(OOM_SCORE)
    try:
        serve(Connection(sys.stdin.fileno()), int(sys.argv[1]), float(sys.argv[2]))
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)


if __name__ == "__main__":
    main()
