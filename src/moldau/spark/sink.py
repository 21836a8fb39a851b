"""The format `moldau` as a sink: Arrow rows become record batches in the tasks; the driver has nothing to commit.

At least once: within one attempt of a task every record is written once (an idempotent producer), but a task or batch
that Spark runs again writes its records again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.client.cluster import cluster_of
from moldau.spark.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.producing import Producing


@dataclass
class Written(WriterCommitMessage):
    rows: int


def write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """What a task does. The producer is kept for the next task of this process, unless something went wrong."""
    from moldau.spark.rows import rows_of

    producing = _producers.pop(_key(options), None) or _new(options)
    rows = 0
    try:
        for batch in batches:
            now_ms = time.time_ns() // 1_000_000
            producing.send(rows_of(batch, options.topic, now_ms, options.include_timestamp))
            rows += batch.num_rows
        producing.flush()
    except BaseException:
        producing.abandon()
        raise
    _producers[_key(options)] = producing
    return Written(rows)


def _new(options: WriteOptions) -> Producing:
    from moldau.spark.producing import Producing

    return Producing(cluster_of(options.bootstrap, options.properties), options, Random())


def _key(options: WriteOptions) -> tuple[Any, ...]:
    return options.bootstrap, tuple(sorted(options.properties.items())), options.topic


_producers: dict[tuple[Any, ...], Producing] = {}


class TopicWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write(self._options, iterator)
