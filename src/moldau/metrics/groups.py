"""Consumer groups and their lag, as kafka-exporter reports them. A group is reported by its coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from moldau.base.clock import MonotonicMs
from moldau.coordinator.group.state import GroupState
from moldau.metrics.lag_history import UNKNOWN_OFFSET, LagHistory, Place
from moldau.prometheus.text import GAUGE, PIECE_SERIES, Family, labels, pieces, single

_GROUP: Final = "kafka_consumergroup"
_OFFSET: Final = Family(f"{_GROUP}_current_offset", GAUGE, "The committed offset.")
_LAG: Final = Family(f"{_GROUP}_lag", GAUGE, "Records from the committed offset to the high watermark.")
_LAG_SECONDS: Final = Family(
    "moldau_consumergroup_lag_seconds", GAUGE, "Age of the record at the committed offset; 0 if all are read."
)
_OFFSET_SUM: Final = Family(f"{_GROUP}_current_offset_sum", GAUGE, "The sum of committed offsets in a topic.")
_LAG_SUM: Final = Family(f"{_GROUP}_lag_sum", GAUGE, "The sum of the lag in a topic.")
_MEMBERS: Final = Family(f"{_GROUP}_members", GAUGE, "Members of a group.")
_GROUPS: Final = Family("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, "Groups.")
_OFFSETS: Final = Family("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE, "Committed offsets.")


class Committed(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition


def committed_offsets(states: Iterable[GroupState]) -> Iterator[list[Committed]]:
    """Yield all committed offsets in lists; after each list the caller may do other work."""
    found: list[Committed] = []
    for state in states:
        for group, topics in list(state.offsets.items()):
            for topic, partitions in list(topics.items()):
                for index, value in list(partitions.items()):
                    found.append(Committed(group, topic, index, value.offset))
                    if len(found) >= PIECE_SERIES:
                        yield found
                        found = []
    yield found


def collect(
    states: Iterable[GroupState],
    rows: list[Committed],
    ends: Mapping[Place, int],
    history: LagHistory,
    now_ms: MonotonicMs,
    per_partition: bool,
) -> Iterator[str]:
    """`ends` are the high watermarks of the partitions, -1 if one is unknown."""
    sums: Counter[tuple[str, str]] = Counter()
    lags: Counter[tuple[str, str]] = Counter()
    known: list[Committed] = []
    for number, row in enumerate(rows, 1):
        sums[row.group, row.topic] += row.offset
        if ends[row.place] != UNKNOWN_OFFSET:
            lags[row.group, row.topic] += _lag(row, ends)
            known.append(row)
        if not number % PIECE_SERIES:
            yield ""
    yield from pieces(_OFFSET_SUM, ((_of_topic(*key), value) for key, value in sums.items()))
    yield from pieces(_LAG_SUM, ((_of_topic(*key), value) for key, value in lags.items()))
    members = []
    for state in states:
        for name, group in list(state.groups.items()):
            members.append((labels(consumergroup=name), len(group.members)))
            if not len(members) % PIECE_SERIES:
                yield ""
    yield from pieces(_MEMBERS, members)
    yield single(_GROUPS, len(members)) + single(_OFFSETS, len(rows))
    if per_partition:
        yield from pieces(_OFFSET, ((_of_partition(row), row.offset) for row in rows))
        yield from pieces(_LAG, ((_of_partition(row), _lag(row, ends)) for row in known))
        seconds = ((_of_partition(row), history.age_ms(row.place, row.offset, now_ms)[0] / 1000) for row in known)
        yield from pieces(_LAG_SECONDS, seconds)


def _lag(row: Committed, ends: Mapping[Place, int]) -> int:
    return max(ends[row.place] - row.offset, 0)


def _of_topic(group: str, topic: str) -> str:
    return labels(consumergroup=group, topic=topic)


def _of_partition(row: Committed) -> str:
    return labels(consumergroup=row.group, topic=row.topic, partition=row.partition)
