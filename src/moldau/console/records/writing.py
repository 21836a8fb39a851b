"""Writing a few records: the partition by key as Java's clients choose it, one request for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.client.murmur2 import partition_of
from moldau.client.producing import ALL, Produce
from moldau.wire.apis import ApiKey
from moldau.wire.messages.produce import ProduceResponse
from moldau.wire.records import Record, build_batch

TIMEOUT_MS: Final = 10_000
ACKS: Final = {"all": ALL, "1": 1, "0": 0}


class Placed(NamedTuple):
    partition: int
    record: Record


def choose_partition(key: bytes | None, partitions: int, turn: int) -> int:
    """By the key's hash; without a key one partition after the other."""
    return turn % partitions if key is None else partition_of(key, partitions)


def write(cluster: Cluster, topic: str, partition: int, records: Sequence[Record], acks: int = ALL) -> int | None:
    """Append records to a partition; return the offset of the first, None without acknowledgement."""
    written = TopicPartition(topic, partition)
    node = cluster.leader(written)
    produce = Produce(cluster.topic, {written: build_batch(records)}, TIMEOUT_MS, acks)
    if acks == 0:
        cluster.channel(node).send_unanswered(ApiKey.PRODUCE, produce.request)
        return None
    result = produce.partitions(cluster.channel(node).ask(ApiKey.PRODUCE, produce.request, ProduceResponse))[written]
    if result.error_code:
        code = ErrorCode(result.error_code)
        raise KafkaError(code, result.error_message or f"{topic}-{partition}: not written: {code.name}")
    return result.base_offset


def by_partition(placed: Iterable[Placed]) -> dict[int, list[Record]]:
    grouped: dict[int, list[Record]] = {}
    for each in placed:
        grouped.setdefault(each.partition, []).append(each.record)
    return grouped
