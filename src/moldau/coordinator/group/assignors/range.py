"""The `range` assignor: each topic is cut into contiguous ranges, one for each subscriber in order.

Topics with equally many partitions and equal subscribers are cut alike, so that a member that joins two of them reads
the same partitions of both (co-partitioning). Where a member stands is told by its name alone: nothing else is sticky.
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
            for place, member_id in enumerate(subscribers):
                end = start + share + (place < extra)
                if start == end:
                    break
                assignment[member_id][topic] = frozenset(range(start, end))
                start = end
        return assignment


def _subscribers(members: Mapping[str, AssignorMember]) -> dict[Uuid, list[str]]:
    """Who reads a topic, in the order of the ranges."""
    subscribers: dict[Uuid, list[str]] = {}
    for member in sorted(members.values(), key=_place):
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(member.member_id)
    return subscribers


def _place(member: AssignorMember) -> tuple[bool, str, str]:
    """Static members come first, by the name that outlives a restart, so that the others' coming and going, under a new
    name each time, does not shift them in the order."""
    return (member.instance_id is None, member.instance_id or "", member.member_id)
