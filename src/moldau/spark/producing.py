"""Arrow rows to a cluster as record batches: grouped by partition, idempotent, order kept; at least once.

The way of a row: its topic (option or column), its partition (column, murmur2 of the key, or a sticky choice), one
record batch per partition and Arrow batch. How batches reach their leaders is in `sending.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.spark.options import WriteOptions
from moldau.spark.records.encode import ProducerStamp, batch_limits, encode_batches
from moldau.spark.rows import Grouped, Rows, grouped
from moldau.spark.sending import Batch, Sending
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header, stamp_producer
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

SEQUENCES: Final = 1 << 31


class Producing:
    """One producer: its id, its sequence numbers, what it has in flight. Used by one task at a time."""

    def __init__(self, cluster: Cluster, options: WriteOptions, random: Random) -> None:
        self._cluster = cluster
        self._options = options
        self._random = random
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._sending = Sending(cluster, options, begin_anew=self._begin_anew)

    def send(self, rows: Rows) -> None:
        """Encodes and sends; waits only while too much is in flight."""
        if len(rows.values):
            by_partition = grouped(rows, partition_counter(self._cluster, self._options), self._random)
            self._sending.send(encoded(by_partition, self._options, self._stamp))

    def flush(self) -> None:
        """Waits until everything sent is acknowledged."""
        self._sending.flush()

    def abandon(self) -> None:
        self._sending.abandon()

    def _stamp(self, where: TopicPartition, count: int) -> ProducerStamp | None:
        if not self._options.is_idempotent:
            return None
        if self._producer is None:
            self._producer = self._cluster.retry(self._new_producer, self._options.metadata_timeout_ms)
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = (sequence + count) % SEQUENCES
        return ProducerStamp(*self._producer, sequence)

    def _new_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self._cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"no producer id: {ErrorCode(answer.error_code).name}")
        return answer.producer_id, answer.producer_epoch

    def _begin_anew(self, unacknowledged: Iterable[Batch]) -> None:
        """The broker no longer knows what this producer sent before: as a new one, rather twice than never."""
        self._producer = None
        self._sequences.clear()
        for batch in unacknowledged:
            stamp = self._stamp(batch.where, read_header(batch.data).record_count)
            if stamp is not None:
                stamp_producer(memoryview(batch.data), stamp.producer_id, stamp.epoch, stamp.base_sequence)


def partition_counter(cluster: Cluster, options: WriteOptions) -> Callable[[str], int]:
    """How many partitions a topic has; one that is missing is made by the broker, if it makes topics."""

    def count(topic: str) -> int:
        found = cluster.retry(lambda: cluster.topic(topic, create=True), options.metadata_timeout_ms)
        return len(found.leaders)

    return count


def encoded(
    rows: Grouped, options: WriteOptions, stamp: Callable[[TopicPartition, int], ProducerStamp | None]
) -> list[Batch]:
    """One batch for each partition, or more where its rows are too large for one."""
    starts = [start for _, start in rows.groups]
    limits = batch_limits(rows.columns, options.batch_bytes_max, starts)
    targets = [rows.groups[bisect_right(starts, first) - 1][0] for first, _ in limits]
    stamps = [stamp(where, end - first) for where, (first, end) in zip(targets, limits, strict=True)]
    made = encode_batches(rows.columns, limits, stamps, options.compression, options.compression_level)
    return [Batch(where, data) for where, data in zip(targets, made, strict=True)]
