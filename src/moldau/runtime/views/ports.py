"""The task for a worker (a process that evaluates views), and an evaluator without workers, for simulations."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.log.reading import Slice
from moldau.views.jobs import Evaluated, Matching, ViewFailed

if TYPE_CHECKING:
    from moldau.views.definition import ViewDefinition
    from moldau.views.engine import Engine

NEEDS_DUCKDB = "views need DuckDB on the broker: pip install 'moldau[views]'"

_PACKAGES: Final = ("duckdb", "pyarrow", "numpy")


def missing_for_views() -> str | None:
    """What to install on this broker before it can show views; nothing is loaded to find that out."""
    if all(sys.modules.get(package) or find_spec(package) for package in _PACKAGES):
        return None
    return NEEDS_DUCKDB[0].upper() + NEEDS_DUCKDB[1:] + "."


class ViewTask(NamedTuple):
    """Evaluate a view over a part of a segment."""

    definition: ViewDefinition
    path: str
    file_id: tuple[int, int]
    """Device and inode: another file of the same name has other records."""
    position: int
    length: int
    partition: int


class BatchesTask(NamedTuple):
    """Find the records that a view would show of these batches, which were fetched."""

    definition: ViewDefinition
    content: bytes
    """Whole batches, at least one."""
    partition: int


def view_task(definition: ViewDefinition, records: Slice, partition: int) -> ViewTask:
    status = os.fstat(records.file.fileno())
    return ViewTask(
        definition, records.file.path, (status.st_dev, status.st_ino), records.position, records.length, partition
    )


def evaluate_or_fail(
    engine: Engine, definition: ViewDefinition, content: bytes | bytearray, partition: int, size: int | None = None
) -> Evaluated | ViewFailed:
    from moldau.views.engine import EngineFailed
    from moldau.views.evaluation import evaluate

    try:
        return evaluate(engine, definition, content, partition, size)
    except (MalformedData, EngineFailed) as failed:
        return ViewFailed(str(failed), is_divisible=True)


def match_or_fail(engine: Engine, task: BatchesTask) -> Matching | ViewFailed:
    from moldau.views.engine import EngineFailed
    from moldau.views.evaluation import matching_offsets

    try:
        return matching_offsets(engine, *task)
    except (MalformedData, EngineFailed) as failed:
        return ViewFailed(str(failed), is_divisible=True)


class ViewsInThread:
    """Evaluates in the node's thread for disk work, without limits: for simulations and tests."""

    def __init__(self, run_in_thread: RunInThread) -> None:
        self._run_in_thread = run_in_thread
        self._engine: Engine | None = None

    def evaluate(
        self, view: str, definition: ViewDefinition, records: Slice, partition: int
    ) -> Promise[Evaluated | ViewFailed]:
        outcome: list[Evaluated | ViewFailed] = []

        def work() -> None:
            from moldau.views.engine import Engine  # imported only where somebody reads a view

            self._engine = self._engine or Engine()
            try:
                outcome.append(evaluate_or_fail(self._engine, definition, records.read(), partition))
            except StorageFault as fault:
                outcome.append(ViewFailed(str(fault), is_retriable=True))

        return self._run_in_thread(work).map(lambda _: outcome[0])

    def withdraw(self, view: str, done: Promise[Evaluated | ViewFailed]) -> None:
        """Do nothing: the work has begun."""

    def close(self) -> None:
        """Do nothing: there is no process to stop."""
