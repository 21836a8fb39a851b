"""Spark's format "moldau-lake": lake tables as sink of streams and of batches, and as source of batches.

    stream.writeStream.format("moldau-lake").option("path", "lake/events").option("format", "delta").start()

Options: path; format (parquet, delta or iceberg; the default is the existing table's format, parquet for a new one);
partitionBy ("day,country"); and for a batch in foreachBatch queryId and batchId, so that it is written once. Only
Spark's interface is here; the other modules do the work.

Spark plans the read of a Python source once: a DataFrame always reads the files of its first use, even in a stream that
joins it in every batch. With the option follow=true each execution reads the current table, in one task: for small
lookup tables of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from moldau.spark.errors.untraced import untraced
from moldau.spark.lake import writing
from moldau.spark.lake.files import write_files
from moldau.spark.lake.tables import (
    BatchTag,
    DataFile,
    LakeError,
    LakeTable,
    Split,
    Target,
    kind_at,
    local_path,
    open_table,
)
from moldau.spark.option_values import boolean

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
"""Spark runs the jobs of each run of a query in a group that is named like the run."""
READ_SPLITS_MAX = 32


@dataclass(frozen=True, slots=True)
class LakeOptions:
    path: str
    kind: str
    partition_by: tuple[str, ...]
    tag: BatchTag | None
    follow: bool = False


def lake_options(options: MutableMapping[str, str]) -> LakeOptions:
    columns = (name.strip() for name in options.get("partitionBy", "").split(","))
    path = local_path(options.get("path", ""))
    kind = options.get("format", "").lower() or kind_at(path) or "parquet"
    return LakeOptions(path, kind, tuple(filter(None, columns)), _tag(options), _follow(options))


def _follow(options: MutableMapping[str, str]) -> bool:
    try:
        return boolean("follow", options.get("follow", "false"))
    except ValueError as error:
        raise LakeError(str(error)) from None


def _tag(options: MutableMapping[str, str]) -> BatchTag | None:
    query_id, batch_id = options.get("queryId"), options.get("batchId")
    if query_id is None and batch_id is None:
        return None
    if query_id is None or batch_id is None or not batch_id.isdecimal():
        raise LakeError("a batch is written once by both options, queryId and batchId (a number); give both or none")
    return BatchTag(query_id, int(batch_id))


class LakeSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "moldau-lake"

    @untraced(LakeError)
    def schema(self) -> StructType:
        options = lake_options(self.options)
        return from_arrow_schema(open_table(options.path, options.kind).schema(), prefer_timestamp_ntz=True)

    @untraced(LakeError)
    def reader(self, schema: StructType) -> DataSourceReader:
        return LakeReader(lake_options(self.options), schema)

    @untraced(LakeError)
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return LakeBatchWriter(lake_options(self.options), schema, overwrite)

    @untraced(LakeError)
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return LakeStreamWriter(lake_options(self.options), schema, overwrite)


@dataclass
class WrittenFiles(WriterCommitMessage):
    """A task's commit message to the driver."""

    tag: BatchTag
    files: list[DataFile]


@dataclass
class LakeSplit(InputPartition):
    split: Split | None
    """None: the whole table at the time when the task runs."""


class LakeReader(DataSourceReader):
    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        self._options = options
        self._columns = schema.fieldNames()
        self._schema = to_arrow_schema(schema, timezone="UTC")

    @untraced(LakeError)
    def partitions(self) -> Sequence[LakeSplit]:
        if self._options.follow:
            return [LakeSplit(None)]
        return [LakeSplit(split) for split in self._table().splits(READ_SPLITS_MAX)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LakeSplit)
        with untraced(LakeError):
            table = self._table()
            for batch in table.read(partition.split or table.splits(1)[0]):
                yield batch.select(self._columns).cast(self._schema)

    def _table(self) -> LakeTable:
        return open_table(self._options.path, self._options.kind)


class LakeBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: LakeOptions, schema: StructType, overwrite: bool) -> None:
        self._options, self._overwrite = options, overwrite
        self._tag = options.tag or writing.once()
        self._target = _prepare(options, schema)

    @untraced(LakeError)
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        run_id = None if self._tag.once else _run_id()
        tag = self._tag if run_id is None else replace(self._tag, run_id=run_id)
        return WrittenFiles(tag, write_files(self._target, tag, _task(), iterator))

    @untraced(LakeError)
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._options, _files(messages), _tag_of(messages) or self._tag, self._overwrite)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        writing.abort(self._options.path, _tag_of(messages) or self._tag)


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """Spark creates one twice for every batch: to plan it, and to commit it."""

    def __init__(self, options: LakeOptions, schema: StructType, overwrite: bool) -> None:
        self._options, self._overwrite = options, overwrite
        self._target = _prepare(options, schema)

    @untraced(LakeError)
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "a stream is written inside a Spark task"
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        assert query_id is not None, "Spark tells a streaming task its query"
        assert batch_id is not None, "Spark tells a streaming task its batch"
        run_id = _run_id()
        assert run_id is not None, "Spark runs the jobs of a stream in a group that is named like the run"
        tag = BatchTag(query_id, int(batch_id), run_id=run_id)
        return WrittenFiles(tag, write_files(self._target, tag, _task(), iterator))

    @untraced(LakeError)
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if (tag := _tag_of(messages)) is not None:
            _commit(self._options, _files(messages), tag, self._overwrite)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if (tag := _tag_of(messages)) is not None:
            writing.abort(self._options.path, tag)


def _prepare(options: LakeOptions, schema: StructType) -> Target:
    arrow = to_arrow_schema(schema, timezone="UTC")
    return writing.prepare(options.path, options.kind, arrow, options.partition_by)


def _commit(options: LakeOptions, files: list[DataFile], tag: BatchTag, overwrite: bool) -> None:
    writing.commit(options.path, options.kind, files, tag, overwrite)


def _task() -> int:
    context = TaskContext.get()
    assert context is not None, "files are written inside a Spark task"
    return context.partitionId()


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[DataFile]:
    return [file for message in messages if isinstance(message, WrittenFiles) for file in message.files]


def _tag_of(messages: Sequence[WriterCommitMessage | None]) -> BatchTag | None:
    """The batch's tag from its tasks' messages; without tasks there is nothing to commit or abort."""
    return next((message.tag for message in messages if isinstance(message, WrittenFiles)), None)


def _run_id() -> str | None:
    """The run of the stream in which the task runs, also in foreachBatch; None outside of a stream."""
    context = TaskContext.get()
    assert context is not None, "files are written inside a Spark task"
    if context.getLocalProperty(QUERY_ID) is None:
        return None
    run_id = context.getLocalProperty(RUN_ID)
    try:
        UUID(run_id or "")
    except ValueError:
        # With a name that other runs have too, a driver that lost its query could not be told from the present one.
        raise LakeError(
            f"the job group of this stream is {run_id!r}, not its run: do not call setJobGroup in foreachBatch"
            " before a lake table is written"
        ) from None
    return str(run_id)
