"""What a cluster says of offsets: the bounds of partitions, and where a range written by a person lies in each.

All partitions of all topics go in one ListOffsets call per question, whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from moldau.cli import offsets
from moldau.cli.connect import CommandFailed, TopicMetadata, admin_api, outcome

Partition = tuple[str, int]
Bounds = dict[Partition, tuple[int, int]]
"""Log start and log end."""


class ResolvedRange(NamedTuple):
    """Offsets of one partition to read: `begin` on, before `end` (None: for ever)."""

    begin: int
    end: int | None


def led(topics: Iterable[TopicMetadata]) -> list[Partition]:
    """The partitions that have a leader to ask."""
    return [(t.topic, number) for t in topics for number, partition in t.partitions.items() if partition.leader >= 0]


def chosen(shown: TopicMetadata, only: Sequence[int]) -> list[Partition]:
    """The partitions of a topic, or those of them that were named."""
    missing = [number for number in only if number not in shown.partitions]
    if missing:
        raise CommandFailed(
            f"{shown.topic} has no partition {', '.join(map(str, missing))}; it has 0 to {len(shown.partitions) - 1}"
        )
    return [(shown.topic, number) for number in sorted(only or shown.partitions)]


def bounds(admin: Any, partitions: Sequence[Partition], read_committed: bool = False) -> Bounds:
    spec = admin_api().OffsetSpec
    starts = _ask(admin, partitions, spec.earliest(), read_committed)
    ends = _ask(admin, partitions, spec.latest(), read_committed)
    return {where: (starts[where], ends[where]) for where in partitions}


def resolve(
    admin: Any, partitions: Sequence[Partition], wanted: offsets.OffsetRange, read_committed: bool = False
) -> dict[Partition, ResolvedRange]:
    """Where the range lies in each partition; a begin outside the log is moved to its nearer bound."""
    known = bounds(admin, partitions, read_committed)
    at_time: dict[int, dict[Partition, int]] = {
        moment: _ask(admin, partitions, admin_api().OffsetSpec.for_timestamp(moment), read_committed)
        for moment in wanted.times
    }
    resolved = {}
    for where, (start, end) in known.items():
        found = {moment: answers[where] for moment, answers in at_time.items() if answers[where] >= 0}
        limits = offsets.PartitionBounds(start, end, found)
        begin = min(max(offsets.resolve(wanted.begin, limits), start), end)
        resolved[where] = ResolvedRange(begin, None if wanted.end is None else offsets.resolve(wanted.end, limits))
    return resolved


def _ask(admin: Any, partitions: Sequence[Partition], spec: Any, read_committed: bool) -> dict[Partition, int]:
    from moldau.client.confluent import IsolationLevel, TopicPartition

    if not partitions:
        return {}
    isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(name, number): spec for name, number in partitions}
    futures = admin.list_offsets(asked, isolation_level=isolation)
    return {
        (where.topic, where.partition): outcome(future, f"{where.topic} partition {where.partition}").offset
        for where, future in futures.items()
    }
