"""Offsets of partitions, looked up in the cluster: their bounds, and the offsets that a range means in each partition.

Each lookup is one ListOffsets call for all partitions of all topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from moldau.cli.cluster_metadata import TopicMetadata
from moldau.cli.connect import CommandFailed, admin_api, error_name, outcome
from moldau.operations import offsets

Partition = tuple[str, int]
Bounds = dict[Partition, tuple[int, int]]
"""Log start offset and log end offset."""
DELETED_MEANWHILE: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})


class ResolvedRange(NamedTuple):
    """Offsets to read in one partition: from `begin` on, before `end`. If `end` is None, reading never ends."""

    begin: int
    end: int | None


def partitions_with_leader(topics: Iterable[TopicMetadata]) -> list[Partition]:
    """Return the partitions that have a leader."""
    return [(t.topic, number) for t in topics for number, partition in t.partitions.items() if partition.leader >= 0]


def partitions_of(topic: TopicMetadata, only: Sequence[int]) -> list[Partition]:
    """Return the partitions of a topic. If `only` is not empty, return just those numbers; they must exist."""
    missing = [number for number in only if number not in topic.partitions]
    if missing:
        raise CommandFailed(
            f"{topic.topic} has no partition {', '.join(map(str, missing))}; it has 0 to {len(topic.partitions) - 1}"
        )
    return [(topic.topic, number) for number in sorted(only or topic.partitions)]


def bounds(
    admin: Any, partitions: Sequence[Partition], read_committed: bool = False, skipped: Collection[str] = ()
) -> Bounds:
    """Return the bounds of each partition, except those that fail with an error whose name is in `skipped`."""
    spec = admin_api().OffsetSpec
    starts = _list_offsets(admin, partitions, spec.earliest(), read_committed, skipped)
    ends = _list_offsets(admin, list(starts), spec.latest(), read_committed, skipped)
    return {partition: (starts[partition], end) for partition, end in ends.items()}


def resolve(
    admin: Any, partitions: Sequence[Partition], offset_range: offsets.OffsetRange, read_committed: bool = False
) -> dict[Partition, ResolvedRange]:
    """Return the offsets of the range in each partition; a begin outside the log is moved to the nearer bound."""
    log_bounds = bounds(admin, partitions, read_committed)
    at_time: dict[int, dict[Partition, int]] = {
        moment: _list_offsets(admin, partitions, admin_api().OffsetSpec.for_timestamp(moment), read_committed)
        for moment in offset_range.times
    }
    resolved = {}
    for partition, (start, end) in log_bounds.items():
        offset_at_time = {moment: answers[partition] for moment, answers in at_time.items() if answers[partition] >= 0}
        limits = offsets.PartitionBounds(start, end, offset_at_time)
        begin = min(max(offsets.resolve(offset_range.begin, limits), start), end)
        range_end = None if offset_range.end is None else offsets.resolve(offset_range.end, limits)
        resolved[partition] = ResolvedRange(begin, range_end)
    return resolved


def _list_offsets(
    admin: Any, partitions: Sequence[Partition], spec: Any, read_committed: bool, skipped: Collection[str] = ()
) -> dict[Partition, int]:
    """Return the offset of each partition, except those that fail with an error whose name is in `skipped`."""
    from moldau.client.confluent import IsolationLevel, TopicPartition

    if not partitions:
        return {}
    isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    requested = {TopicPartition(name, number): spec for name, number in partitions}
    found = {}
    for partition, future in admin.list_offsets(requested, isolation_level=isolation).items():
        try:
            answer = outcome(future, f"{partition.topic} partition {partition.partition}")
        except CommandFailed as error:
            if error_name(error) not in skipped:
                raise
        else:
            found[partition.topic, partition.partition] = answer.offset
    return found
