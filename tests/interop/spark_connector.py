"""Drives the connector as Spark does, but without a JVM: plan, read each task, stream batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit

from moldau.client.cluster import Cluster
from moldau.spark.columns import source_schema
from moldau.spark.connections import connected
from moldau.spark.options import write_options
from moldau.spark.producing import Producer
from moldau.spark.rows import rows_of
from moldau.spark.source import MoldauSource

NOW_MS = time.time_ns() // 1_000_000
"""Records with old timestamps would be removed while a test reads them."""
CreateTopic = Callable[..., str]
"""The fixture `create_topic`."""


def source(bootstrap: str, options: Mapping[str, str]) -> MoldauSource:
    return MoldauSource({"kafka.bootstrap.servers": bootstrap, **options})


def rows(reader: DataSourceReader | DataSourceStreamReader, partitions: Any, columns: pa.Schema) -> pa.Table:
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, columns).sort_by([("topic", "ascending"), ("partition", "ascending")])


def read(bootstrap: str, **options: str) -> pa.Table:
    """Return all rows of a batch query, ordered by topic and partition."""
    schema = source_schema(options.get("includeHeaders") == "true")
    reader: Any = source(bootstrap, options).reader(schema)
    try:
        return rows(reader, reader.partitions(), reader._schema)
    finally:
        connected(reader._options).close()


class StreamRun:
    """The calls of a streaming query, in the order in which Spark makes them."""

    def __init__(self, bootstrap: str, **options: str) -> None:
        self.reader = source(bootstrap, options).streamReader(source_schema(options.get("includeHeaders") == "true"))
        self.at = self.reader.initialOffset()
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()

    def end(self) -> dict[str, Any]:
        return self.reader.latestOffset(self.at, self.limit)

    def batch(self) -> pa.Table:
        """Return the next micro-batch; empty if there is nothing to read."""
        end = self.end()
        partitions = self.reader.partitions(self.at, end)
        table = rows(self.reader, partitions, self.reader._schema)  # type: ignore[attr-defined]
        self.at = end
        return table

    def batches(self) -> Iterator[pa.Table]:
        """Yield batches until there are no more, as a query with the trigger available-now does."""
        self.reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
        while self.end() != self.at:
            yield self.batch()

    def close(self) -> None:
        self.reader.stop()


@contextmanager
def producing(bootstrap: str, **options: str) -> Iterator[tuple[Producer, Callable[[pa.RecordBatch], None]]]:
    """Yield a producer of the sink with its own connections, and a function that sends rows; flush at the end."""
    chosen = write_options({"kafka.bootstrap.servers": bootstrap, **options})
    with closing(Cluster(bootstrap, chosen.properties)) as cluster:
        producer = Producer(cluster, chosen, Random(7))
        yield producer, lambda batch: producer.send(rows_of(batch, chosen.topic, NOW_MS, chosen.include_timestamp))
        producer.flush()


def write(bootstrap: str, batch: pa.RecordBatch, **options: str) -> None:
    """Write rows as a task of the sink does."""
    with producing(bootstrap, **options) as (_, send):
        send(batch)
