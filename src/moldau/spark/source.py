"""The format `moldau`: what Spark calls, in its words. Batch and stream read here; sink.py writes.

The columns and options are those of Spark's own Kafka connector, so a program moves between the two by one word. An
instance travels: it is made on the driver, pickled, and woken in workers, so it holds values and no connections.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from moldau.client.cluster import cluster_of
from moldau.spark.columns import check_sink, projection, source_schema
from moldau.spark.errors.untraced import untraced
from moldau.spark.fetching import DataLoss, fetch
from moldau.spark.offsets import Range, from_json, tasks, to_json
from moldau.spark.options import ReadOptions, check_options, read_options, write_options
from moldau.spark.positions import Stream, batch_ranges
from moldau.spark.subscribed import refuse_missing

if TYPE_CHECKING:
    import pyarrow as pa


class MoldauSource(DataSource):
    """`spark.read.format("moldau")` and its three sisters."""

    @untraced(ValueError)
    def __init__(self, options: dict[str, str]) -> None:
        """Runs in load(), save() and start(): what is wrong is told there, not when rows are first asked for."""
        super().__init__(options)
        check_options(options)

    @classmethod
    def name(cls) -> str:
        return "moldau"

    @untraced(ValueError)
    def schema(self) -> StructType:
        """Called for reading only, by load(), unless the reader brings a schema."""
        options = read_options(self.options, is_stream=None)
        refuse_missing(options)
        return source_schema(options.include_headers)

    @untraced(ValueError)
    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(read_options(self.options, is_stream=False), projection(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return TopicStreamReader(read_options(self.options, is_stream=True), projection(schema))
        except ValueError as error:
            return RefusedStream(error)

    @untraced(ValueError)
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from moldau.spark.sink import TopicWriter

        options = write_options(self.options)
        if overwrite:
            raise ValueError("A topic cannot be overwritten; write with mode append")
        check_sink(schema, options.topic)
        return TopicWriter(options)

    @untraced(ValueError)
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from moldau.spark.sink import TopicStreamWriter

        options = write_options(self.options, is_stream=True)
        check_sink(schema, options.topic)
        return TopicStreamWriter(options)


class TaskRanges(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def _read(options: ReadOptions, schema: pa.Schema, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What a task does. A batch query without records has one partition that is empty."""
    if isinstance(partition, TaskRanges):
        with untraced(DataLoss):
            yield from fetch(cluster_of(options.bootstrap, options.properties), partition.ranges, schema, options)


class TopicReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    @untraced(ValueError)
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        ranges = batch_ranges(cluster_of(options.bootstrap, options.properties), options)
        return [TaskRanges(some) for some in tasks(ranges, options.partitions_min, options.records_per_task_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives for as long as the query, in a process of its own; `read` alone runs in workers."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._stream: Stream | None = None

    def _positions(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(cluster_of(self._options.bootstrap, self._options.properties), self._options)
        return self._stream

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "_stream": None}

    @untraced(ValueError)
    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._positions().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._positions().default_limit()

    @untraced(ValueError, DataLoss)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return to_json(self._positions().next_end(from_json(start), limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        latest = self._positions().seen
        return to_json(latest) if latest else None

    @untraced(ValueError, DataLoss)
    def prepareForTriggerAvailableNow(self) -> None:
        self._positions().fix_target()

    @untraced(ValueError, DataLoss)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._positions().ranges(from_json(start), from_json(end))
        options = self._options
        return [TaskRanges(some) for some in tasks(ranges, options.partitions_min, options.records_per_task_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()


class RefusedStream(DataSourceStreamReader):
    """Stands for a stream whose options are wrong, and says so when it is asked for anything.

    If the reader itself cannot be made, PySpark fails over the one that it lacks, and tells of that instead.
    """

    def __init__(self, why: ValueError) -> None:
        self._why = why

    @untraced(ValueError)
    def initialOffset(self) -> dict[str, Any]:
        raise self._why

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    @untraced(ValueError)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._why

    @untraced(ValueError)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._why

    @untraced(ValueError)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._why
