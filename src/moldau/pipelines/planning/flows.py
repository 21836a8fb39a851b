"""A flow writes a frame to one target: with a streaming query in a continuous run, with one write in a batch run.

This module writes to each kind of target; sinks.py and dead_letters.py decide the content of the frame.
A batch is written to topics and tables once: its tag is (query id, batch id) in a stream, and the run's id in a batch
run. Output mode update, which Spark's Python sinks do not support, uses foreachBatch, as do overwriting, upserts and
sinks that share one query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, Protocol

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from moldau.databases import writing
from moldau.databases.batches import Batch
from moldau.databases.destinations import Destination
from moldau.databases.rows import FileRows
from moldau.pipelines.queries import WRITTEN
from moldau.pipelines.spec import REAL_TIME, Place
from moldau.spark.arrow_files import arrow_files
from moldau.spark.lake import BatchTag, upsert

OutputMode = Literal["append", "update", "complete"]
LAKE: Final = "moldau-lake"
QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"
CONSOLE_ROWS: Final = 20


Shape = Callable[[DataFrame], DataFrame]


def unchanged(frame: DataFrame) -> DataFrame:
    return frame


class Target(Protocol):
    """Writes rows to one place."""

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        """Return a writer without name, trigger and checkpoint. `state` is a directory for files that it must keep."""

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        """Write all rows at once. A target that has the batch of this tag already does not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One streaming query, or one batch write. The columns of the frame are those that its target needs."""

    name: str
    """The sink's name, or "<source>.dead-letters" for a source's bad records. Query and checkpoint have it too."""
    kind: Literal["topic", "table", "database", "console", "backend", "dead letters"]
    place: Place
    view: str
    """The source or step that the rows come from."""
    description: str
    """For users: "topic bookstore.counts", "topics by concat(…)", "delta table lake/events", "console"."""
    frame: DataFrame
    shape: Shape = unchanged
    """The function that made the frame from the view."""
    mode: OutputMode
    trigger: str | None
    target: Target


def merge(name: str, rows: DataFrame, flows: Sequence[Flow]) -> Flow:
    """Return one flow that replaces several, which all use these rows."""
    first = flows[0]
    parts = tuple((flow.name, flow.shape, flow.target) for flow in flows)
    description = ", ".join(flow.description for flow in flows)
    return replace(first, name=name, description=description, frame=rows, shape=unchanged, target=SharedTarget(parts))


def start(flow: Flow, checkpoint: Path, until_caught_up: bool = False) -> StreamingQuery:
    """Start the flow's query under the name of the flow, with its checkpoint in the directory `checkpoint`."""
    writer = flow.target.stream(flow.frame, flow.mode, checkpoint).queryName(flow.name)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if until_caught_up:
        writer = writer.trigger(availableNow=True)
    elif flow.trigger is not None and flow.trigger.startswith(REAL_TIME):
        duration = flow.trigger.removeprefix(REAL_TIME)
        writer = writer.outputMode("update").trigger(realTime=duration)  # type: ignore[call-overload]  # its stub lacks it
    elif flow.trigger is not None:
        writer = writer.trigger(processingTime=flow.trigger)
    return writer.start()


def write_batch(flow: Flow, run_id: str, state: Path) -> int:
    """Write the flow once, as a batch; return the number of rows. `run_id` tags the transaction, so that a second write
    with the same id writes nothing."""
    observation = Observation()
    frame = flow.frame.observe(observation, F.count(F.lit(1)).alias("rows"))
    flow.target.write(frame, BatchTag(f"batch-{run_id}-{flow.name}", 0), state)
    return int(observation.get["rows"])


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """Writes records with the connector; `options` has the topic. Spark's own connector writes at least once."""

    connector: str
    options: Mapping[str, str] = field(repr=False)

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        if mode == "append" or self.connector == "kafka":
            return frame.writeStream.format(self.connector).options(**self.options).outputMode(mode)
        return write_batches(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        options = dict(self.options)
        if self.connector == "moldau":
            # This write has no checkpoint; the connector stages records there, where all executors can read them.
            options |= {"queryId": tag.query_id, "batchId": str(tag.batch_id), "checkpointLocation": str(state)}
        frame.write.format(self.connector).options(**options).mode("append").save()


@dataclass(frozen=True, slots=True)
class TableTarget:
    """Writes rows to a lake table. With `overwrites` each batch is the whole table, for output mode complete."""

    path: str
    kind: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    overwrites: bool = False

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        if not self.overwrites:
            return frame.writeStream.format(LAKE).options(**self._options()).outputMode(mode)
        return write_batches(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        tagged = self._options() | {"queryId": tag.query_id, "batchId": str(tag.batch_id)}
        mode = "overwrite" if self.overwrites else "append"
        frame.write.format(LAKE).options(**tagged).mode(mode).save()

    def _options(self) -> dict[str, str]:
        table = {"path": self.path, "format": self.kind, "partitionBy": ",".join(self.partition_by)}
        return dict(self.options) | table


@dataclass(frozen=True, slots=True)
class UpsertTarget:
    """Merges rows into a Delta table by key. A batch, which has only the changes, passes through the driver."""

    path: str
    kind: str
    partition_by: tuple[str, ...]
    keys: tuple[str, ...]
    delete_column: str | None
    """The boolean column that is true in rows that delete their key."""
    order_by: str | None
    """The column whose highest value wins among rows of a key, in a batch and in the table; without it the last row."""

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        return write_batches(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        rows = frame.toArrow()
        upsert(
            self.path, self.kind, rows, self.keys, self.delete_column, tag,
            order_by=self.order_by, partition_by=self.partition_by,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DatabaseTarget:
    """Writes rows to a table of a database. The tasks compute a batch into files; the driver sends these to the
    database in one transaction, together with the number of the batch."""

    destination: Destination

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        return write_batches(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        with arrow_files(frame, state / "database-rows" / tag.query_id) as written:
            if written is not None:
                rows = FileRows(written.schema, written.files)
                writing.write(self.destination, rows, Batch(tag.query_id, tag.batch_id, tag.run_id))


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    """Prints the rows of each batch as a table to standard output; batches without rows are not shown."""

    name: str
    rows: int = CONSOLE_ROWS
    truncate: bool = True

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        return frame.writeStream.outputMode(mode).foreachBatch(
            lambda batch, batch_id: self._show(batch, f"{self.name}, batch {batch_id}")
        )

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        self._show(frame, self.name)

    def _show(self, frame: DataFrame, title: str) -> None:
        # localCheckpoint computes the batch once, though isEmpty and show both read it. One row more than is shown lets
        # show say "only showing top … rows".
        rows = frame.limit(self.rows + 1).localCheckpoint()
        if not rows.isEmpty():
            print(f"--- {title} ---")
            rows.show(self.rows, self.truncate)


@dataclass(frozen=True, slots=True)
class SharedTarget:
    """Several targets of one query. A batch is computed once and written to each target. A target that has it already,
    from before a failure, does not change."""

    parts: tuple[tuple[str, Shape, Target], ...]
    """For each sink its name, the function from the batch to the rows of its target, and the target."""

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        return write_batches(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        rows = frame.persist()
        try:
            for name, shape, target in self.parts:
                target.write(shape(rows), tag, state / "sinks" / name)
        finally:
            rows.unpersist()


def write_batches(target: Target, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
    """Return a writer that writes each micro-batch with one call of `target.write`, and counts its rows."""
    counted = frame.observe(WRITTEN, F.count(F.lit(1)).alias("rows"))
    return counted.writeStream.outputMode(mode).foreachBatch(
        lambda batch, batch_id: target.write(batch, _tag(batch, batch_id), state)
    )


def _tag(batch: DataFrame, batch_id: int) -> BatchTag:
    """Return the tag of a batch. It is the same if Spark repeats the batch, which is then not written again."""
    context = batch.sparkSession.sparkContext
    query_id, run_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(RUN_ID)
    assert query_id, "Spark sets the query id for each batch of a stream"
    assert run_id, "Spark runs the jobs of a stream in a group that is named like the run"
    return BatchTag(query_id, batch_id, run_id=run_id)
