"""The format `moldau` as a sink: tasks encode Arrow rows into record batches.

With at-least-once delivery, tasks send them and the driver commits nothing: one attempt of a task writes every record
once (idempotent producer), but a task or batch that Spark runs again writes its records again. With exactly-once
delivery, tasks stage them, and the driver's commit writes them in one transaction (`exactly_once/`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.client.cluster import cluster_of
from moldau.spark.errors.untraced import untraced
from moldau.spark.exactly_once.committing import commit
from moldau.spark.exactly_once.staging import Stage, Staged, StagingFault, directory_of, sweep
from moldau.spark.options import ExactlyOnce, WriteOptions
from moldau.spark.rows import UnusableRow, grouped, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.producing import Producer

QUERY_ID: Final = "sql.streaming.queryId"
TRANSACTION_TIMEOUT_MS_MIN: Final = 60_000
TRANSACTION_TIMEOUT_MS_MAX: Final = 900_000
"""The default of the brokers' transaction.max.timeout.ms."""
BYTES_PER_MS_MIN: Final = 2_000
"""The slowest expected rate, from which a transaction's timeout is computed."""


@dataclass
class Written(WriterCommitMessage):
    rows: int


@dataclass
class StagedRows(WriterCommitMessage):
    sink_id: str
    staged: Staged


# --- tasks ------------------------------------------------------------------------------------------------------------


def write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write rows at least once. After success the producer is kept for the next task of this process."""
    producer = _producers.pop(_producer_key(options), None) or _new_producer(options)
    rows = 0
    try:
        for batch in batches:
            producer.send(rows_of(batch, options.topic, _now_ms(), options.include_timestamp))
            rows += batch.num_rows
        producer.flush()
    except BaseException:
        producer.abandon()
        raise
    _producers[_producer_key(options)] = producer
    return Written(rows)


def stage(options: WriteOptions, how: ExactlyOnce, sink_id: str, batches: Iterator[pa.RecordBatch]) -> StagedRows:
    """Stage rows for exactly-once delivery: nothing is written to a topic before the driver knows which attempts of
    which tasks count."""
    from moldau.spark.producing import encoded, partition_count_of
    from moldau.spark.records.encode import ProducerStamp

    partition_count = partition_count_of(cluster_of(options.bootstrap, options.properties), options)
    unstamped = ProducerStamp(0, 0, 0, is_transactional=True)
    random = Random()
    into = Stage(directory_of(how.staging, sink_id), how.inline_bytes_max)
    try:
        for batch in batches:
            if batch.num_rows:
                rows = rows_of(batch, options.topic, _now_ms(), options.include_timestamp)
                encoded_batches = encoded(
                    grouped(rows, partition_count, random), options, lambda partition, record_count: unstamped
                )
                into.add(encoded_batches, batch.num_rows)
        return StagedRows(sink_id, into.done())
    except BaseException:
        into.abandon()
        raise


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_producer(options: WriteOptions) -> Producer:
    from moldau.spark.producing import Producer

    return Producer(cluster_of(options.bootstrap, options.properties), options, Random())


def _producer_key(options: WriteOptions) -> tuple[Any, ...]:
    return options.bootstrap, tuple(sorted(options.properties.items())), options.topic


_producers: dict[tuple[Any, ...], Producer] = {}


# --- driver -----------------------------------------------------------------------------------------------------------


def commit_staged(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    """Write what the tasks staged, unless the topics already have it. Without tasks there is nothing to write."""
    from moldau.spark.exactly_once.wire import KafkaTransactionRequests

    rows = [message for message in messages if isinstance(message, StagedRows)]
    if not rows or options.exactly_once is None:
        return
    staged = [message.staged for message in rows]
    timeout_ms = options.exactly_once.transaction_timeout_ms or timeout_for(sum(task.size for task in staged))
    cluster = cluster_of(options.bootstrap, options.properties)
    commit(KafkaTransactionRequests(cluster, options, rows[0].sink_id, timeout_ms), staged, batch_id)
    drop_staged(options, messages)


def drop_staged(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    for sink_id in {message.sink_id for message in messages if isinstance(message, StagedRows)}:
        assert options.exactly_once is not None
        sweep(directory_of(options.exactly_once.staging, sink_id))


def timeout_for(size: int) -> int:
    """Return the timeout of a transaction of `size` bytes. If the driver dies, consumers wait so long."""
    return min(TRANSACTION_TIMEOUT_MS_MAX, TRANSACTION_TIMEOUT_MS_MIN + size // BYTES_PER_MS_MIN)


# --- Spark's interface ------------------------------------------------------------------------------------------------


class TopicWriter(DataSourceArrowWriter):
    """One instance per write; tasks and the commit use a pickled copy."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        how = options.exactly_once
        if how is not None:
            self._name = f"once-{uuid.uuid4()}" if how.batch is None else how.batch[0]

    @untraced(UnusableRow, StagingFault)
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        how = self._options.exactly_once
        if how is None:
            return write(self._options, iterator)
        return stage(self._options, how, f"{how.transactional_id_prefix}-{self._name}", iterator)

    @untraced(UnusableRow, StagingFault)
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        how = self._options.exactly_once
        batch_id = None if how is None or how.batch is None else how.batch[1]
        commit_staged(self._options, messages, batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop_staged(self._options, messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Spark creates two instances for every micro-batch: one to plan it, and one to commit it."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @untraced(UnusableRow, StagingFault)
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        how = self._options.exactly_once
        if how is None:
            return write(self._options, iterator)
        context = TaskContext.get()
        assert context is not None, "a stream is written inside a Spark task"
        query_id = context.getLocalProperty(QUERY_ID)
        assert query_id, "Spark sets the query id for each task of a stream"
        return stage(self._options, how, f"{how.transactional_id_prefix}-{query_id}", iterator)

    @untraced(UnusableRow, StagingFault)
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_staged(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        drop_staged(self._options, messages)
