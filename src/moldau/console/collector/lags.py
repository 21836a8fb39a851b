"""How far groups are behind, from what the collector knows: committed offsets and log ends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.base.clock import MonotonicMs, WallMs
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import Member
from moldau.console.collector.ages import NO_AGE, Age, Ages, oldest
from moldau.console.collector.state import GroupState, Reader, Rebalance, TopicState
from moldau.metrics.lag_history import UNKNOWN_OFFSET, Place

NAMES_MAX: Final = 20


def ends_of_read_partitions(groups: Iterable[GroupState], topics: Mapping[str, TopicState]) -> dict[Place, int]:
    """Return the log ends of all partitions that a group has an offset in; -1 where the end is unknown."""
    ends: dict[Place, int] = {}
    for group in groups:
        if group.holds_micro_batch_ids:
            continue
        for name, (indexes, _) in group.offsets.items():
            topic = topics.get(name)
            if topic is None:
                continue
            known = topic.ends or ()
            for index in indexes:
                ends[topic.name, index] = known[index] if index < len(known) else UNKNOWN_OFFSET
    return ends


def set_lags(
    groups: Iterable[GroupState], topics: Mapping[str, TopicState], ages: Ages, now_ms: MonotonicMs
) -> dict[str, list[Reader]]:
    """Set the lag of each group; return the readers of each topic, the greatest lag first."""
    readers: dict[str, list[Reader]] = {}
    for group in groups:
        total: int | None = None
        known_ages: list[Age] = []
        for name, (indexes, offsets) in group.offsets.items() if not group.holds_micro_batch_ids else ():
            known = _topic_lag(topics.get(name), indexes, offsets, ages, now_ms)
            if known is not None and group.is_share_group:
                known = _share_lag(group, name, indexes, known[1])
            if known is None:
                readers.setdefault(name, []).append(Reader(group.group_id, None, None))
                continue
            lag, age = known
            total = (total or 0) + lag
            known_ages.append(age)
            readers.setdefault(name, []).append(Reader(group.group_id, lag, age))
        group.lag, group.age = total, oldest(known_ages)
    for each in readers.values():
        each.sort(key=lambda reader: (-(reader.lag or 0), reader.group_id))
    return readers


def _topic_lag(
    topic: TopicState | None, indexes: Iterable[int], offsets: Iterable[int], ages: Ages, now_ms: MonotonicMs
) -> tuple[int, Age] | None:
    """Return the lag in records and in time, None if no end is known. Partitions whose end is unknown do not count."""
    if topic is None or topic.ends is None:
        return None
    total, greatest_ms, is_any_least, is_known = 0, 0, False, False
    ends = topic.ends
    for index, offset in zip(indexes, offsets, strict=True):
        end = ends[index] if index < len(ends) else -1
        is_known |= end >= 0
        if end > offset:
            total += end - offset
            age_ms, is_least = ages.age_ms((topic.name, index), offset, now_ms)
            greatest_ms = max(greatest_ms, age_ms)
            is_any_least |= is_least
    return (total, Age(greatest_ms / 1000, is_any_least)) if is_known else None


def _share_lag(group: GroupState, topic: str, indexes: Iterable[int], age: Age) -> tuple[int, Age] | None:
    """Return the lag of a share group as its coordinator counts it: some records after the start offset are finished.
    None if the coordinator knows no lag."""
    lags = [group.share_offsets[TopicPartition(topic, index)].lag for index in indexes]
    known = [each for each in lags if each is not None]
    if not known:
        return None
    return sum(known), age if any(known) else NO_AGE


def rebalance(
    before: tuple[Member, ...], after: tuple[Member, ...], state: str, now_ms: WallMs, names: Mapping[str, str]
) -> Rebalance | None:
    """Return what changed in a group between two looks; None if no member came, went or got other partitions."""
    old = {member.member_id: member for member in before}
    new = {member.member_id: member for member in after}
    joined = [_label(member, names) for member_id, member in new.items() if member_id not in old]
    left = [_label(member, names) for member_id, member in old.items() if member_id not in new]
    moved = sum(old[each].assignment != new[each].assignment for each in old.keys() & new.keys())
    if not (joined or left or moved):
        return None
    changes = [f"{_listed(joined)} joined"] if joined else []
    changes += [f"{_listed(left)} left"] if left else []
    cause = " and ".join(changes) or "partitions moved between the members"
    return Rebalance(now_ms, len(before), len(after), tuple(joined[:NAMES_MAX]), tuple(left[:NAMES_MAX]), cause, state)


def _label(member: Member, names: Mapping[str, str]) -> str:
    name = names.get(member.member_id) or member.instance_id or member.client_id
    return f"{name} ({member.host.removeprefix('/')})"


def _listed(labels: list[str]) -> str:
    return labels[0].partition(" (")[0] if len(labels) == 1 else f"{len(labels)} members"
