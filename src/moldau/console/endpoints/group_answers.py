"""What all answers about a group have: members and lags, and what the console saw over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import Committed, CommittedOffsets, Member, ShareOffset
from moldau.console.collector.ages import NO_AGE, Age, age_data, oldest
from moldau.console.collector.collector import Collector
from moldau.console.collector.state import UNKNOWN, GroupState, Rebalance, known_sum
from moldau.operations.cluster_overview import member_names
from moldau.operations.groups import host_of
from moldau.operations.lag import PartitionLag, ShareLag

PARTITIONS_SHOWN: Final = 2_000
EXACT_PARTITIONS_MAX: Final = 500
"""With more partitions the lags are those that the collector knows, and their seconds are interpolated."""


def estimated_lags(
    collector: Collector, partitions: Iterable[TopicPartition], committed: CommittedOffsets
) -> list[PartitionLag]:
    """Return the lags from what the collector knows; seconds are interpolated."""
    topics, now = collector.state.topics, collector.monotonic_ms()
    lags = []
    for partition in sorted(set(partitions) | set(committed)):
        topic = topics.get(partition.topic)
        ends = () if topic is None or topic.ends is None else topic.ends
        end = ends[partition.partition] if partition.partition < len(ends) else UNKNOWN
        offset = committed[partition].offset if partition in committed else None
        if end == UNKNOWN or offset is None:
            lags.append(PartitionLag(partition, offset, None if end == UNKNOWN else end, None))
        else:
            age = NO_AGE if offset >= end else collector.ages.age(partition, offset, now)
            lags.append(PartitionLag(partition, offset, end, *age))
    return lags


def estimated_share_lags(
    collector: Collector, partitions: Iterable[TopicPartition], offsets: Mapping[TopicPartition, ShareOffset]
) -> list[ShareLag]:
    """The same of a share group, whose coordinator has counted the records."""
    starts = {at: Committed(each.start_offset) for at, each in offsets.items()}
    lags = []
    for partition, start, end, seconds, is_least in estimated_lags(collector, partitions, starts):
        records = None if start is None else offsets[partition].lag
        age = NO_AGE if records == 0 else Age(seconds, is_least) if seconds is not None else (None, False)
        lags.append(ShareLag(partition, start, end, records, *age))
    return lags


def members_and_lags(members: Sequence[Member], lags: Sequence[PartitionLag | ShareLag]) -> dict[str, Any]:
    readers: dict[TopicPartition, list[str]] = {}
    for member in members:
        for each in member.assignment:
            readers.setdefault(each, []).append(member.member_id)
    names = member_names(members)
    lag_of = {lag.partition: lag.records for lag in lags}
    known = [lag.records for lag in lags if lag.records is not None]
    by_lag = sorted(lags, key=lambda lag: (-(lag.records or 0), lag.partition))
    return {
        "lag": sum(known) if known else None,
        **age_data(oldest(map(_age, lags))),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": host_of(member),
                "name": names[member.member_id],
                "partitions": [
                    {"topic": each.topic, "partition": each.partition} for each in sorted(member.assignment)
                ],
                "lag": known_sum(lag_of.get(each) for each in member.assignment),
            }
            for member in members
        ],
        "partitions": [_partition_row(lag, readers.get(lag.partition, [])) for lag in by_lag[:PARTITIONS_SHOWN]],
        "partitions_total": len(lags),
    }


def _partition_row(lag: PartitionLag | ShareLag, readers: list[str]) -> dict[str, Any]:
    """Several members of a share group may read a partition."""
    who: dict[str, Any]
    if isinstance(lag, ShareLag):
        offset, who = lag.start, {"members": readers}
    else:
        offset, who = lag.committed, {"member": readers[-1] if readers else None}
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed": offset,
        "end": lag.log_end,
        "lag": lag.records,
        **age_data(_age(lag)),
        **who,
    }


def _age(lag: PartitionLag | ShareLag) -> Age | None:
    return None if lag.seconds is None else Age(lag.seconds, lag.is_least)


def history_and_rebalances(collector: Collector, group_id: str, state: GroupState | None) -> dict[str, Any]:
    """What the console saw over time."""
    history = collector.history
    return {
        "history": {
            "times_ms": history.times_ms(),
            "lag": history.values(("lag", group_id)),
            "lag_seconds": history.values(("lag_seconds", group_id)),
            "members": history.values(("members", group_id)),
        },
        "rebalances": [] if state is None else [rebalance_data(each) for each in list(state.rebalances)],
        **collector.freshness(),
    }


def rebalance_data(rebalance: Rebalance) -> dict[str, Any]:
    return {
        "time_ms": rebalance.time_ms,
        "from_members": rebalance.from_members,
        "to_members": rebalance.to_members,
        "joined": list(rebalance.joined),
        "left": list(rebalance.left),
        "cause": rebalance.cause,
        "state": rebalance.state,
    }
