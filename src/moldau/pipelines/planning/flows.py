"""A flow is a frame on its way to one target: a streaming query in a continuous run, one write in a batch run.

How each kind of target is written lives here; what the frame holds was decided before (sinks.py, dead_letters.py).
Topics and tables are written once per batch: by (query id, batch id) in a stream, by the run's id in a batch. Output
mode update, which Python sinks refuse, goes through foreachBatch, as do overwriting, upserts and sinks that share one
query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, Protocol

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from moldau.pipelines.spec import Place
from moldau.spark.lake import BatchTag, upsert

OutputMode = Literal["append", "update", "complete"]
LAKE: Final = "moldau-lake"
QUERY_ID: Final = "sql.streaming.queryId"
CONSOLE_ROWS: Final = 20


Shape = Callable[[DataFrame], DataFrame]


def as_they_are(frame: DataFrame) -> DataFrame:
    return frame


class Target(Protocol):
    """Where rows go, and how."""

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        """A writer that only lacks name, trigger and checkpoint. `state` is a directory for what it must keep."""

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        """All rows at once. What holds that tag's batch already is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One streaming query, or one batch write: a frame already in the shape that its target takes."""

    name: str
    """The sink's, or "<source>.dead-letters" for the bad records of a source. Also the query's and its checkpoint's."""
    kind: Literal["topic", "table", "console", "dead letters"]
    place: Place
    view: str
    """The source or step whose rows these are."""
    described: str
    """For people: "topic bookstore.counts", "topics by concat(…)", "delta table lake/events", "console"."""
    frame: DataFrame
    shape: Shape = as_they_are
    """What made rows of the view into rows of the frame."""
    mode: OutputMode
    trigger: str | None
    target: Target


def shared(name: str, rows: DataFrame, flows: Sequence[Flow]) -> Flow:
    """One flow in place of several that are all made of these rows."""
    first = flows[0]
    parts = tuple((flow.name, flow.shape, flow.target) for flow in flows)
    described = ", ".join(flow.described for flow in flows)
    return replace(first, name=name, described=described, frame=rows, shape=as_they_are, target=SharedTarget(parts))


def start(flow: Flow, checkpoint: Path, until_caught_up: bool = False) -> StreamingQuery:
    """Start the flow's query, named like the flow, with its checkpoint in that directory."""
    writer = flow.target.stream(flow.frame, flow.mode, checkpoint).queryName(flow.name)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if until_caught_up:
        writer = writer.trigger(availableNow=True)
    elif flow.trigger is not None:
        writer = writer.trigger(processingTime=flow.trigger)
    return writer.start()


def write_batch(flow: Flow, run_id: str, state: Path) -> int:
    """Run the flow once, as a batch; returns how many rows. `run_id` tags the transaction: the same id twice is written
    once."""
    counted = Observation()
    frame = flow.frame.observe(counted, F.count(F.lit(1)).alias("rows"))
    flow.target.write(frame, BatchTag(f"batch-{run_id}-{flow.name}", 0), state)
    return int(counted.get["rows"])


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """Records through the connector; `options` say where to. Spark's own connector writes at least once."""

    connector: str
    options: Mapping[str, str]

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        if mode == "append":
            return frame.writeStream.format(self.connector).options(**self.options).outputMode(mode)
        return _by_batch(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        options = dict(self.options)
        if self.connector == "moldau":
            # The checkpoint is not of this write; records are staged beside it, where the cluster sees them.
            options |= {"queryId": tag.query_id, "batchId": str(tag.batch_id), "checkpointLocation": str(state)}
        frame.write.format(self.connector).options(**options).mode("append").save()


@dataclass(frozen=True, slots=True)
class TableTarget:
    """Rows into a lake table. `overwrites`: each batch is the whole table, as the output mode complete means it."""

    path: str
    kind: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    overwrites: bool = False

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        if not self.overwrites:
            return frame.writeStream.format(LAKE).options(**self._options()).outputMode(mode)
        return _by_batch(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        tagged = self._options() | {"queryId": tag.query_id, "batchId": str(tag.batch_id)}
        mode = "overwrite" if self.overwrites else "append"
        frame.write.format(LAKE).options(**tagged).mode(mode).save()

    def _options(self) -> dict[str, str]:
        own = {"path": self.path, "format": self.kind, "partitionBy": ",".join(self.partition_by)}
        return dict(self.options) | own


@dataclass(frozen=True, slots=True)
class UpsertTarget:
    """Rows merged into a Delta table by key. A batch passes through the driver: it is what changed, not the table."""

    path: str
    kind: str
    partition_by: tuple[str, ...]
    keys: tuple[str, ...]
    deletes: str | None
    """The boolean column that says which rows delete their key."""
    order_by: str | None
    """Of several rows of a key the one with the highest counts, in a batch and in the table; without it the last."""

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        return _by_batch(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        rows = frame.toArrow()
        upsert(
            self.path, self.kind, rows, self.keys, self.deletes, tag,
            order_by=self.order_by, partition_by=self.partition_by,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    """Rows as a table on standard output, a batch at a time; batches without rows are not shown."""

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
        rows = frame.limit(self.rows + 1).localCheckpoint()
        if not rows.isEmpty():
            print(f"--- {title} ---")
            rows.show(self.rows, self.truncate)


@dataclass(frozen=True, slots=True)
class SharedTarget:
    """Several targets of one query. A batch is computed once, and each target gets all of it; one that has it already,
    from before a failure, leaves it alone."""

    parts: tuple[tuple[str, Shape, Target], ...]
    """The sink's name, what makes rows of the batch into rows for its target, and the target."""

    def stream(self, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
        return _by_batch(self, frame, mode, state)

    def write(self, frame: DataFrame, tag: BatchTag, state: Path) -> None:
        rows = frame.persist()
        try:
            for name, shape, target in self.parts:
                target.write(shape(rows), tag, state / "sinks" / name)
        finally:
            rows.unpersist()


def _by_batch(target: Target, frame: DataFrame, mode: OutputMode, state: Path) -> DataStreamWriter:
    """Each micro-batch as one write of the target."""
    return frame.writeStream.outputMode(mode).foreachBatch(
        lambda batch, batch_id: target.write(batch, _tag(batch, batch_id), state)
    )


def _tag(batch: DataFrame, batch_id: int) -> BatchTag:
    """The same after a restart from the checkpoint, so a batch that Spark writes again is recognised."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    assert query_id, "Spark tells a batch of a stream its query"
    return BatchTag(query_id, batch_id)
