"""The `range` assignor: each topic is split into contiguous ranges, one for each subscriber in order.

Topics with the same number of partitions and the same subscribers are split in the same way, so that a member that
joins two of them reads the same partitions of both (co-partitioning). The order of members depends only on their ids;
the assignor is not sticky otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors.member import Assignment, AssignorMember


class RangeAssignor:
    name: Final = "range"

    def assign(self, members: Mapping[str, AssignorMember], partitions: Mapping[Uuid, int]) -> Assignment:
        assignment: Assignment = {member_id: {} for member_id in members}
        for topic, subscribers in _subscribers(members).items():
            share, extra = divmod(partitions.get(topic, 0), len(subscribers))
            start = 0
            for position, member_id in enumerate(subscribers):
                end = start + share + (position < extra)
                if start == end:
                    break
                assignment[member_id][topic] = frozenset(range(start, end))
                start = end
        return assignment


def _subscribers(members: Mapping[str, AssignorMember]) -> dict[Uuid, list[str]]:
    """Return the subscribers of each topic, in the order of the ranges."""
    subscribers: dict[Uuid, list[str]] = {}
    for member in sorted(members.values(), key=_sort_key):
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(member.member_id)
    return subscribers


def _sort_key(member: AssignorMember) -> tuple[bool, str, str]:
    """Static members come first, by instance id, which stays the same after a restart: dynamic members, which get a new
    id each time, then do not change their positions."""
    return (member.instance_id is None, member.instance_id or "", member.member_id)
