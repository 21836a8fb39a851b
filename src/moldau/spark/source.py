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
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from moldau.client.cluster import cluster_of
from moldau.spark.columns import check_sink, projection, source_schema
from moldau.spark.offsets import Range, from_json, tasks, to_json
from moldau.spark.options import ReadOptions, read_options, write_options
from moldau.spark.positions import Stream, batch_ranges

if TYPE_CHECKING:
    import pyarrow as pa


class MoldauSource(DataSource):
    """`spark.read.format("moldau")` and its three sisters."""

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> StructType:
        return source_schema(str(self.options.get("includeHeaders", "false")).lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(read_options(self.options, is_stream=False), projection(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopicStreamReader(read_options(self.options, is_stream=True), projection(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from moldau.spark.sink import TopicWriter

        options = write_options(self.options)
        if overwrite:
            raise ValueError("A topic cannot be overwritten; write with mode append")
        check_sink(schema, options.topic)
        return TopicWriter(options)

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
    from moldau.spark.fetching import fetch

    if not isinstance(partition, TaskRanges):
        return iter(())
    return fetch(cluster_of(options.bootstrap, options.properties), partition.ranges, schema, options)


class TopicReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

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

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._positions().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._positions().default_limit()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return to_json(self._positions().next_end(from_json(start), limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        latest = self._positions().seen
        return to_json(latest) if latest else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._positions().fix_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._positions().ranges(from_json(start), from_json(end))
        options = self._options
        return [TaskRanges(some) for some in tasks(ranges, options.partitions_min, options.records_per_task_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
