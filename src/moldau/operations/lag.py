"""How far a group is behind: in records, and in seconds.

For a share group its coordinator counts the records, because some after the first one may be acknowledged already.

Seconds are the age of the first record that the group has not consumed: how long it has been waiting. No broker
returns that, so the record is fetched to read its timestamp. The lag in seconds is 0 if no record waits in a partition,
and unknown if the group has not committed an offset there, or if the record has no timestamp or cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import CommittedOffsets, ShareOffset, ShareOffsets
from moldau.client.cluster import EARLIEST, Cluster
from moldau.client.decoding import BatchTooLarge, DecodingBudget
from moldau.client.fetching.requests import Fetch, FetchedPartition, FetchLimits
from moldau.wire.apis import ApiKey
from moldau.wire.batch import DELETE_HORIZON_BIT, BatchHeader
from moldau.wire.messages.fetch import FetchResponse

FETCH_LIMITS: Final = FetchLimits(wait_ms=0, bytes_max=16 << 20, partition_bytes_max=64 << 10, bytes_min=0)
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


class ShareLag(NamedTuple):
    """The lag of a share group in one partition. What is unknown is None, as is `start` until the group reads there."""

    partition: TopicPartition
    start: int | None
    log_end: int | None
    records: int | None
    seconds: float | None
    is_least: bool = False
    """Whether the record may be older than `seconds`."""


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


def share_lags(
    cluster: Cluster, partitions: Iterable[TopicPartition], offsets: ShareOffsets, now_ms: int
) -> list[ShareLag]:
    """Return the lag of a share group in each of these partitions, sorted. Where the coordinator does not know the
    offset, all is unknown but the end."""
    ordered = sorted(set(partitions) | set(offsets))
    known = {partition: each for partition, each in offsets.items() if isinstance(each, ShareOffset)}
    ends = log_ends(cluster, ordered)
    behind = {
        partition: each.start_offset
        for partition, each in known.items()
        if each.lag != 0 and (end := ends[partition]) is not None and each.start_offset < end
    }
    timestamps = first_timestamps(cluster, behind)
    lags = []
    for partition in ordered:
        offset = known.get(partition)
        if offset is None:
            lags.append(ShareLag(partition, None, ends[partition], None, None))
            continue
        seconds = None if ends[partition] is None else 0.0
        if partition in behind:
            seconds = None if partition not in timestamps else max(0, now_ms - timestamps[partition]) / 1000
        lags.append(ShareLag(partition, offset.start_offset, ends[partition], offset.lag, seconds))
    return lags


def first_timestamps(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the timestamp of the first record at or after each offset. Leave out partitions that have none."""
    pending = dict(offsets)
    timestamps: dict[TopicPartition, int] = {}
    budget = DecodingBudget()
    while pending:
        before = dict(pending)
        answered: set[TopicPartition] = set()
        out_of_range: list[TopicPartition] = []
        for fetched in _fetch(cluster, before):
            answered.add(fetched.partition)
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(fetched.partition)
            else:
                _store_timestamp_or_advance(fetched, pending, timestamps, budget)
        _advance_to_starts(cluster, out_of_range, pending)
        if pending == before:  # No partition advanced: the log ended, or the leader returned an error.
            break
        # A leader that failed is not asked again: each round would wait for it.
        pending = {partition: offset for partition, offset in pending.items() if partition in answered}
    return {partition: timestamp for partition, timestamp in timestamps.items() if timestamp >= 0}


def _advance_to_starts(
    cluster: Cluster, partitions: Sequence[TopicPartition], pending: dict[TopicPartition, int]
) -> None:
    """Go on where the logs start now, in partitions whose offset is not in the log; leave out those that end before.

    The responses that say so have been read by then: the next response overwrites the records in them.
    """
    if not partitions:
        return
    for partition, start in cluster.list_offsets(dict.fromkeys(partitions, EARLIEST)).items():
        if pending[partition] < start:
            pending[partition] = start
        else:
            del pending[partition]


def _store_timestamp_or_advance(
    fetched: FetchedPartition,
    pending: dict[TopicPartition, int],
    timestamps: dict[TopicPartition, int],
    budget: DecodingBudget,
) -> None:
    """Put the timestamp of the first record into `timestamps`, or advance the partition's offset in `pending`.

    A response may contain no record at or after the offset, only markers or batches that end before it.
    """
    partition = fetched.partition
    if fetched.error:
        return
    try:
        for header, batch, _ in fetched.batches():
            timestamp = first_timestamp(header, batch, pending[partition], budget)
            if timestamp is not None:
                timestamps[partition] = timestamp
                del pending[partition]
                return
            pending[partition] = max(pending[partition], header.next_offset)
    except MalformedData:  # such as messages of an older format: their age is unknown
        del pending[partition]


def _fetch(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> Iterator[FetchedPartition]:
    """Yield what the leaders return. One that is gone meanwhile is left out: the age of its records is unknown."""
    led, _ = cluster.led(offsets)
    for node, partitions in led.items():
        positions = {partition: offsets[partition] for partition in partitions}
        fetch = Fetch(cluster.topic, positions, FETCH_LIMITS, read_committed=False)
        try:
            response = cluster.channel(node).ask(ApiKey.FETCH, fetch.request, FetchResponse)
        except OSError:
            cluster.drop(node)
            continue
        yield from fetch.partitions(response)


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
