"""How far a group is behind: in records, and in seconds.

Seconds are the age of the first record that the group has not consumed: how long it has been waiting. No broker
returns that, so the record is fetched to read its timestamp. The lag in seconds is 0 if no record waits in a partition,
and unknown if the group has not committed an offset there or if the record has no timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.admin.group_values import CommittedOffsets
from moldau.client.cluster import EARLIEST, Cluster
from moldau.client.decoding import BatchTooLarge, DecodingBudget
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BATCH_HEADER_BYTES, DELETE_HORIZON_BIT, BatchHeader, read_header
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

PARTITION_BYTES_MAX: Final = 64 << 10
"""A broker also returns a larger batch whole, but only one in each response."""
FETCH_BYTES_MAX: Final = 16 << 20
LEADER_MOVES_MS: Final = 3_000
"""How long to wait for another leader: somebody looks at the screen."""


class PartitionLag(NamedTuple):
    """The lag in one partition. `committed` is None if the group has no offset there; the others if unknown."""

    partition: TopicPartition
    committed: int | None
    log_end: int | None
    seconds: float | None
    is_least: bool = False
    """Whether the record may be older than `seconds`."""

    @property
    def records(self) -> int | None:
        if self.committed is None or self.log_end is None:
            return None
        return max(0, self.log_end - self.committed)


def without_lags(committed: CommittedOffsets) -> list[PartitionLag]:
    """Return what a group has committed that stores ids of micro-batches as offsets: it has no lag."""
    return [PartitionLag(partition, committed[partition].offset, None, None) for partition in sorted(committed)]


def log_ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """Return the log end offset of each partition, or None if it has no leader now or its topic was deleted. Wait for a
    leader that moves."""
    partitions = set(partitions)
    if not partitions:
        return {}
    ends: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
    return ends | cluster.retry(lambda: cluster.latest(partitions_with_leader(cluster, partitions)), LEADER_MOVES_MS)


def partitions_with_leader(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that have a leader. Those of deleted topics have none."""
    partitions = list(partitions)
    cluster.refresh({partition.topic for partition in partitions})
    nodes = cluster.nodes()
    with_leader = []
    for partition in partitions:
        try:
            if cluster.topic(partition.topic).leaders.get(partition.partition) in nodes:
                with_leader.append(partition)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
    return with_leader


def partition_lags(
    cluster: Cluster, partitions: Iterable[TopicPartition], committed: CommittedOffsets, now_ms: int
) -> list[PartitionLag]:
    """Return the lag in each of these partitions, sorted."""
    ordered = sorted(set(partitions) | set(committed))
    ends = log_ends(cluster, ordered)
    behind = {
        partition: committed_offset.offset
        for partition, committed_offset in committed.items()
        if (end := ends[partition]) is not None and committed_offset.offset < end
    }
    timestamps = first_timestamps(cluster, behind)
    lags = []
    for partition in ordered:
        offset = committed[partition].offset if partition in committed else None
        seconds = None if offset is None or ends[partition] is None else 0.0
        if partition in behind:
            seconds = None if partition not in timestamps else max(0, now_ms - timestamps[partition]) / 1000
        lags.append(PartitionLag(partition, offset, ends[partition], seconds))
    return lags


def first_timestamps(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamp of the first record at or after each offset. Leave out partitions that have none."""
    pending = dict(offsets)
    timestamps: dict[TopicPartition, int] = {}
    budget = DecodingBudget()
    while pending:
        before = dict(pending)
        answered: set[TopicPartition] = set()
        for partition, data in _fetch(cluster, before):
            answered.add(partition)
            _store_timestamp_or_advance(cluster, partition, data, pending, timestamps, budget)
        if pending == before:  # No partition advanced: the log ended, or the leader returned an error.
            break
        # A leader that failed is not asked again: each round would wait for it.
        pending = {partition: offset for partition, offset in pending.items() if partition in answered}
    return {partition: timestamp for partition, timestamp in timestamps.items() if timestamp >= 0}


def _store_timestamp_or_advance(
    cluster: Cluster,
    partition: TopicPartition,
    data: PartitionData,
    pending: dict[TopicPartition, int],
    timestamps: dict[TopicPartition, int],
    budget: DecodingBudget,
) -> None:
    """Put the timestamp of the first record into `timestamps`, or advance the partition's offset in `pending`.

    A response may contain no record at or after the offset, only markers or batches that end before it.
    """
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        start = cluster.list_offsets({partition: EARLIEST})[partition]
        if pending[partition] < start:
            pending[partition] = start
        else:
            del pending[partition]
        return
    if data.error_code or not data.records:
        return
    assert isinstance(data.records, memoryview)
    for header, batch in whole_batches(data.records):
        timestamp = first_timestamp(header, batch, pending[partition], budget)
        if timestamp is not None:
            timestamps[partition] = timestamp
            del pending[partition]
            return
        pending[partition] = max(pending[partition], header.next_offset)


def _fetch(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Yield what the leaders return. One that is gone meanwhile is left out: the age of its records is unknown."""
    led, _ = cluster.led(offsets)
    for node, partitions in led.items():
        topics = [
            FetchTopic(
                cluster.topic(name).topic_id,
                name,
                [
                    FetchPartition(
                        index,
                        fetch_offset=offsets[TopicPartition(name, index)],
                        partition_max_bytes=PARTITION_BYTES_MAX,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions).items()
        ]
        names = {cluster.topic(name).topic_id: name for name in by_topic(partitions)}
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES_MAX, topics=topics)
        try:
            response = cluster.channel(node).ask(ApiKey.FETCH, request, FetchResponse)
        except OSError:
            cluster.drop(node)
            continue
        for topic in response.responses:
            name = topic.topic or names[bytes(topic.topic_id)]
            for data in topic.partitions:
                yield TopicPartition(name, data.partition_index), data


def whole_batches(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a fetch response. Leave out the last batch if it is incomplete."""
    position = 0
    while len(records) - position >= BATCH_HEADER_BYTES:
        header = read_header(records, position)
        end = position + header.size_in_bytes
        if end > len(records) or end <= position:
            return
        yield header, records[position:end]
        position = end


def first_timestamp(header: BatchHeader, batch: memoryview, offset: int, budget: DecodingBudget) -> int | None:
    """Return the timestamp of a batch's first record at or after an offset; None if the batch has no such record.

    A transaction marker is not a record. For a batch that the budget is not enough for it is the timestamp of the
    batch's youngest record, which is the least possible age.
    """
    if header.is_control or header.last_offset < offset:
        return None
    # Compaction neither removed a record nor set a delete horizon: the first record has the base offset and timestamp.
    is_unchanged = header.record_count == header.last_offset_delta + 1 and not header.attributes & DELETE_HORIZON_BIT
    if header.base_offset >= offset and is_unchanged:
        return header.max_timestamp if header.is_log_append_time else header.base_timestamp
    try:
        records = budget.decode(header, batch)
    except BatchTooLarge:
        records = None
    if records is None:
        return header.max_timestamp
    return next((record.timestamp for record in records if record.offset >= offset), None)
