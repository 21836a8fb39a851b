"""Writes Arrow rows to a cluster as record batches: grouped by partition, idempotent, in order, at least once.

A row's topic comes from the option or its column; its partition from its column, murmur2 of the key, or a sticky
choice. There is one record batch per partition and Arrow batch, or several if the rows are too large for one.
`sending.py` sends them to the leaders.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from random import Random
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.client.cluster import Cluster
from moldau.spark.options import WriteOptions
from moldau.spark.records.encode import ProducerStamp, batch_limits, encode_batches
from moldau.spark.rows import Grouped, Rows, grouped
from moldau.spark.sending import RecordBatch, Sending
from moldau.wire.apis import ApiKey
from moldau.wire.batch import next_sequence, read_header, stamp_producer
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

METADATA_AGE_MAX_S: Final = 300.0
"""As metadata.max.age.ms of Kafka's clients."""
_metadata_since: WeakKeyDictionary[Cluster, float] = WeakKeyDictionary()
"""When a cluster's metadata was forgotten last, or first used here."""


class Producer:
    """One producer: its id, sequence numbers and requests in flight. Used by one task at a time."""

    def __init__(self, cluster: Cluster, options: WriteOptions, random: Random) -> None:
        self._cluster = cluster
        self._options = options
        self._random = random
        self._id_and_epoch: ProducerIdAndEpoch | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._sending = Sending(cluster, options, renew_producer_id=self._renew_producer_id)

    def send(self, rows: Rows) -> None:
        """Encode and send rows. Blocks only while too many requests are in flight."""
        if len(rows.values):
            by_partition = grouped(rows, partition_count_of(self._cluster, self._options), self._random)
            self._sending.send(encoded(by_partition, self._options, self._stamp))

    def flush(self) -> None:
        """Wait until everything sent is acknowledged."""
        self._sending.flush()

    def abandon(self) -> None:
        """Drop requests in flight after an error; this producer is not used again."""
        self._sending.abandon()

    def _stamp(self, partition: TopicPartition, record_count: int) -> ProducerStamp | None:
        """Return producer id, epoch and base sequence of the next batch, and advance the partition's sequence; None if
        not idempotent."""
        if not self._options.is_idempotent:
            return None
        if self._id_and_epoch is None:
            self._id_and_epoch = self._cluster.retry(self._init_producer_id, self._options.metadata_timeout_ms)
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = next_sequence(sequence, record_count)
        return ProducerStamp(*self._id_and_epoch, sequence)

    def _init_producer_id(self) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = self._cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
        if response.error_code:
            code = ErrorCode(response.error_code)
            raise KafkaError(code, f"InitProducerId failed: {code.name}")
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    def _renew_producer_id(self, unacknowledged: Iterable[RecordBatch]) -> None:
        """Write a new producer id into the batches, because the broker has lost the old producer's state. This may
        duplicate records, but loses none."""
        self._id_and_epoch = None
        self._sequences.clear()
        for batch in unacknowledged:
            stamp = self._stamp(batch.partition, read_header(batch.data).record_count)
            if stamp is not None:
                stamp_producer(memoryview(batch.data), stamp.producer_id, stamp.epoch, stamp.base_sequence)


def partition_count_of(cluster: Cluster, options: WriteOptions) -> Callable[[str], int]:
    """Return a function that counts a topic's partitions. The broker creates a missing topic if it is allowed to."""
    _forget_old_metadata(cluster)

    def count(topic: str) -> int:
        metadata = cluster.retry(lambda: cluster.topic(topic, create=True), options.metadata_timeout_ms)
        return len(metadata.leaders)

    return count


def _forget_old_metadata(cluster: Cluster) -> None:
    """Let the cluster request its metadata again now and then, as Kafka's producers do. Workers run for days, and a key
    must go to the same partition from all of them soon after partitions were added."""
    now = monotonic()
    if now - _metadata_since.setdefault(cluster, now) >= METADATA_AGE_MAX_S:
        cluster.forget()
        _metadata_since[cluster] = now


def encoded(
    rows: Grouped, options: WriteOptions, stamp: Callable[[TopicPartition, int], ProducerStamp | None]
) -> list[RecordBatch]:
    """Return the rows as record batches: one for each partition, or several if its rows are too large for one."""
    starts = [start for _, start in rows.groups]
    limits = batch_limits(rows.columns, options.batch_bytes_max, starts)
    targets = [rows.groups[bisect_right(starts, first) - 1][0] for first, _ in limits]
    stamps = [stamp(partition, end - first) for partition, (first, end) in zip(targets, limits, strict=True)]
    batches = encode_batches(rows.columns, limits, stamps, options.compression, options.compression_level)
    return [RecordBatch(partition, data) for partition, data in zip(targets, batches, strict=True)]
