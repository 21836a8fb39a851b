"""Offsets of partitions, looked up in the cluster: their bounds, and the offsets that a range means in each partition.

Each lookup is one ListOffsets call for all partitions of all topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.cluster.connect import admin_failures, command_failure
from moldau.cli.connect import CommandFailed
from moldau.client.cluster import EARLIEST, LATEST
from moldau.operations import offsets

if TYPE_CHECKING:
    from moldau.client.admin.cluster_admin import ClusterAdmin
    from moldau.client.admin.cluster_values import TopicReplicas

Partition = tuple[str, int]
Bounds = dict[Partition, tuple[int, int]]
"""Log start offset and log end offset."""
DELETED_MEANWHILE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class ResolvedRange(NamedTuple):
    """Offsets to read in one partition: from `begin` on, before `end`. If `end` is None, reading never ends."""

    begin: int
    end: int | None


def partitions_with_leader(topics: Iterable[TopicReplicas]) -> list[Partition]:
    """Return the partitions that have a leader."""
    return [(t.name, number) for t in topics for number, partition in t.partitions.items() if partition.leader >= 0]


def partitions_of(topic: TopicReplicas, only: Sequence[int]) -> list[Partition]:
    """Return the partitions of a topic. If `only` is not empty, return just those numbers; they must exist."""
    missing = [number for number in only if number not in topic.partitions]
    if missing:
        raise CommandFailed(
            f"{topic.name} has no partition {', '.join(map(str, missing))}; it has 0 to {len(topic.partitions) - 1}"
        )
    return [(topic.name, number) for number in sorted(only or topic.partitions)]


def bounds(
    admin: ClusterAdmin,
    partitions: Sequence[Partition],
    read_committed: bool = False,
    skipped: Collection[ErrorCode] = (),
) -> Bounds:
    """Return the bounds of each partition, except those that fail with an error in `skipped`."""
    starts = _list_offsets(admin, partitions, EARLIEST, read_committed, skipped)
    ends = _list_offsets(admin, list(starts), LATEST, read_committed, skipped)
    return {partition: (starts[partition], end) for partition, end in ends.items()}


def resolve(
    admin: ClusterAdmin,
    partitions: Sequence[Partition],
    offset_range: offsets.OffsetRange,
    read_committed: bool = False,
) -> dict[Partition, ResolvedRange]:
    """Return the offsets of the range in each partition; a begin outside the log is moved to the nearer bound."""
    log_bounds = bounds(admin, partitions, read_committed)
    at_time: dict[int, dict[Partition, int]] = {
        moment: _list_offsets(admin, partitions, moment, read_committed) for moment in offset_range.times
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
    admin: ClusterAdmin,
    partitions: Sequence[Partition],
    timestamp: int,
    read_committed: bool,
    skipped: Collection[ErrorCode] = (),
) -> dict[Partition, int]:
    """Return the offset of each partition, except those that fail with an error in `skipped`."""
    found = {}
    with admin_failures():
        results = admin.each_offset({TopicPartition(*each): timestamp for each in partitions}, read_committed)
    for (name, number), offset in results.items():
        if not isinstance(offset, KafkaError):
            found[name, number] = offset
        elif offset.code not in skipped:
            raise command_failure(offset, f"{name} partition {number}") from offset
    return found
