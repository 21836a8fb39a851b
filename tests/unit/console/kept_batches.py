"""A stand-in for a cluster that answers fetches from batches in memory, as brokers do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.client.cluster import Topic
from moldau.wire.batch import read_header
from moldau.wire.compression import Compression
from moldau.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.wire.records import Record, build_batch

NODE = 1


class KeptBatches:
    """One topic on one broker; `batches` by partition."""

    def __init__(self, batches: dict[int, Sequence[bytes]], aborted: Sequence[AbortedTransaction] = ()) -> None:
        self.batches = batches
        self.aborted = aborted
        self._request: FetchRequest | None = None

    def topic(self, name: str) -> Topic:
        return Topic(name, bytes(16), dict.fromkeys(self.batches, NODE))

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        return {NODE: list(partitions)}

    def channel(self, node: int) -> KeptBatches:
        return self

    def drop(self, node: int) -> None:
        self._request = None

    def send(self, key: Any, request: FetchRequest) -> None:
        self._request = request

    def receive(self, response_type: type[FetchResponse]) -> FetchResponse:
        assert self._request is not None
        left = self._request.max_bytes
        (topic,) = self._request.topics
        answered = []
        for each in topic.partitions:
            records = bytearray()
            for batch in self.batches[each.partition]:
                if read_header(batch).next_offset <= each.fetch_offset:
                    continue
                is_first = left == self._request.max_bytes and not records
                if not is_first and (len(records) + len(batch) > each.partition_max_bytes or len(batch) > left):
                    break
                records += batch
                left -= len(batch)
            answered.append(
                PartitionData(
                    each.partition,
                    high_watermark=1 << 40,
                    aborted_transactions=self.aborted,
                    records=memoryview(bytes(records)),
                )
            )
        return FetchResponse(responses=[FetchableTopicResponse(topic.topic_id, topic.topic, answered)])


def log_of(
    count: int, value_bytes: int, per_batch: int = 100, compression: Compression = Compression.NONE
) -> list[bytes]:
    """A log of `count` records with values of this size."""
    return [
        bytes(
            build_batch(
                [Record(at, at, b"", bytes(value_bytes)) for at in range(base, min(count, base + per_batch))],
                base_offset=base,
                compression=compression,
            )
        )
        for base in range(0, count, per_batch)
    ]
