"""Which batches of a query a table has, and which driver may write the next one. Pure.

The database has one row for each query and table in its table `moldau_batches`. A write locks it, asks `next_state`,
and changes it in the transaction of the batch's rows. So a batch is there whole and once, whenever a process is killed.

Spark may run one query on two drivers, for example if one was suspended and its supervisor started another. Each has a
run id. The driver whose new batch comes last takes the query over, and the one before it is refused from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from moldau.databases.errors import DriverFenced

FORMER_RUNS_MAX: Final = 32
"""A row names so many former drivers. An older one could take the query over again; that duplicates nothing, because
the table has its batches."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch of a query. Spark repeats a batch after a crash with the same query id and number."""

    query_id: str
    number: int
    run_id: str
    """The driver that writes."""


@dataclass(frozen=True, slots=True)
class State:
    """What the row of a query and table says; the first one is before any batch."""

    batch: int = -1
    epoch: int = 0
    """How many drivers have written."""
    run_id: str = ""
    former_runs: tuple[str, ...] = ()


def next_state(table: str, before: State, batch: Batch) -> State | None:
    """Return the state with this batch; None if the table has the batch. Raises DriverFenced if another driver has
    taken the query over. A batch that the table has claims nothing."""
    if batch.number <= before.batch:
        return None
    if batch.run_id in before.former_runs:
        raise DriverFenced(
            f"{table}: another driver of query {batch.query_id} has taken over, so batch {batch.number} of this one was"
            " not written; run each query (each checkpoint) on one driver only, and stop this one if it still runs"
        )
    if batch.run_id == before.run_id:
        return replace(before, batch=batch.number)
    former = (before.run_id, *before.former_runs)[:FORMER_RUNS_MAX] if before.run_id else ()
    return State(batch.number, before.epoch + 1, batch.run_id, former)
