"""The format `moldau`: Spark's data source interface. Batch and stream reads are here; sink.py writes.

Columns and options are those of Spark's own Kafka connector, so that a program only changes the format's name. An
instance is created on the driver and pickled to workers, so it holds values and no connections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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

from moldau.base.errors import ErrorCode, KafkaError
from moldau.spark.columns import check_sink, checked_arrow_schema, source_schema
from moldau.spark.connections import connected, views_in
from moldau.spark.delegation import TaskLogin, delegated, in_task, is_login, task_login, without_login
from moldau.spark.errors.untraced import untraced
from moldau.spark.fetching import DataLoss, fetch
from moldau.spark.offsets import Range, divide_among_tasks, from_spark_json, to_json
from moldau.spark.options import ReadOptions, check_options, read_options, write_options
from moldau.spark.positions import Stream, batch_ranges
from moldau.spark.pushed.making import View
from moldau.spark.subscribed import check_topics_exist

if TYPE_CHECKING:
    import pyarrow as pa


class MoldauSource(DataSource):
    """The format "moldau" of `spark.read`, `readStream`, `write` and `writeStream`."""

    @untraced(ValueError)
    def __init__(self, options: dict[str, str]) -> None:
        """Called by load(), save() and start(): wrong options raise there, not when rows are first read."""
        super().__init__(options)
        check_options(options)

    @classmethod
    def name(cls) -> str:
        return "moldau"

    @untraced(ValueError)
    def schema(self) -> StructType:
        """Called only for reading, by load(), unless the user gives a schema."""
        options = read_options(self.options, is_stream=None)
        check_topics_exist(options)
        return source_schema(options.include_headers)

    @untraced(ValueError)
    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(self._read_options(is_stream=False), checked_arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return TopicStreamReader(self._read_options(is_stream=True), checked_arrow_schema(schema))
        except ValueError as error:
            return InvalidStream(error)

    def _read_options(self, is_stream: bool) -> ReadOptions:
        options = read_options(self.options, is_stream)
        if options.delegation_token:
            # PySpark sends this object to tasks, together with the reader.
            self.options = {name: value for name, value in self.options.items() if not is_login(name)}
        return options

    @untraced(ValueError)
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from moldau.spark.sink import TopicWriter

        options = write_options(self.options)
        if overwrite:
            raise ValueError("A topic cannot be overwritten; write with mode append")
        check_sink(schema, options.topic, options.include_timestamp)
        return TopicWriter(delegated(options))

    @untraced(ValueError)
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from moldau.spark.sink import TopicStreamWriter

        options = write_options(self.options, is_stream=True)
        check_sink(schema, options.topic, options.include_timestamp)
        return TopicStreamWriter(delegated(options))


VIEW_HINTS: Final = {
    ErrorCode.CORRUPT_MESSAGE: "`moldau view describe {arguments}` says what failed",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the options `where` and `fields` need READ on: {names}",
}
"""What to do about errors of a view that is read instead of a topic."""


class TaskRanges(InputPartition):
    """The ranges that one task reads, the views that it reads them from, by topic, and its login, if it has one of its
    own."""

    def __init__(self, ranges: Sequence[Range], views: Mapping[str, View], login: TaskLogin | None = None) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.login = login
        topics = {each.partition.topic for each in ranges}
        self.views = {topic: view for topic, view in views.items() if topic in topics}


def _split_into_tasks(ranges: Sequence[Range], options: ReadOptions) -> list[InputPartition]:
    views, login = views_in(connected(options)), task_login(options)
    return [
        TaskRanges(some, views, login)
        for some in divide_among_tasks(ranges, options.partitions_min, options.records_per_task_max)
    ]


def _read(options: ReadOptions, schema: pa.Schema, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read one partition in a task.

    For a batch query without records PySpark passes a placeholder partition: nothing is read.
    """
    if isinstance(partition, TaskRanges):
        options = in_task(options, partition.login)
        with untraced(DataLoss):
            cluster = connected(options, partition.views)
            try:
                yield from fetch(cluster, partition.ranges, schema, options)
            except KafkaError as error:
                hint = VIEW_HINTS.get(error.code)
                if hint is None or not partition.views:
                    raise
                names = sorted(view.name for view in partition.views.values())
                advice = hint.format(arguments=" ".join(names), names=", ".join(names))
                raise KafkaError(error.code, f"{error}; {advice}") from error


class TopicReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": without_login(self._options), "_schema": self._schema}

    @untraced(ValueError)
    def partitions(self) -> Sequence[InputPartition]:
        return _split_into_tasks(batch_ranges(connected(self._options), self._options), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One per query, in a Python process beside the driver; only `read` runs in workers."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._stream: Stream | None = None

    def _positions(self) -> Stream:
        if self._stream is None:
            self._stream = Stream(connected(self._options), self._options)
        return self._stream

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": without_login(self._options), "_schema": self._schema, "_stream": None}

    @untraced(ValueError)
    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._positions().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._positions().default_limit()

    @untraced(ValueError, DataLoss)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return to_json(self._positions().next_end(from_spark_json(start), limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        latest = self._positions().seen
        return to_json(latest) if latest else None

    @untraced(ValueError, DataLoss)
    def prepareForTriggerAvailableNow(self) -> None:
        self._positions().fix_target()

    @untraced(ValueError, DataLoss)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return _split_into_tasks(self._positions().ranges(from_spark_json(start), from_spark_json(end)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()


class InvalidStream(DataSourceStreamReader):
    """A stream whose options are wrong: every call for offsets or records raises the error.

    If the reader could not be created, PySpark would fail because of the missing reader and report that instead.
    """

    def __init__(self, error: ValueError) -> None:
        self._error = error

    @untraced(ValueError)
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    @untraced(ValueError)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    @untraced(ValueError)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    @untraced(ValueError)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error
