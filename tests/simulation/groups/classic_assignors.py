"""How the leader of a classic group assigns partitions: Kafka's three assignors, written from their descriptions.

The cooperative one never assigns a partition that another member still claims: it leaves it unassigned for one
generation, in which the old owner revokes it, and assigns it in the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Partition = tuple[str, int]
Assignments = dict[str, list[Partition]]


class MemberSubscription(NamedTuple):
    """What a member sends to the leader."""

    topics: frozenset[str]
    owned: frozenset[Partition]
    generation: int


def assign(protocol: str, subscriptions: Mapping[str, MemberSubscription], counts: Mapping[str, int]) -> Assignments:
    return ASSIGNORS[protocol](subscriptions, counts)


def _range(subscriptions: Mapping[str, MemberSubscription], counts: Mapping[str, int]) -> Assignments:
    assignments: Assignments = {member: [] for member in subscriptions}
    for topic in sorted(counts):
        readers = sorted(member for member, subscription in subscriptions.items() if topic in subscription.topics)
        if not readers:
            continue
        each, more = divmod(counts[topic], len(readers))
        first = 0
        for place, member in enumerate(readers):
            count = each + (place < more)
            assignments[member] += [(topic, index) for index in range(first, first + count)]
            first += count
    return assignments


def _round_robin(subscriptions: Mapping[str, MemberSubscription], counts: Mapping[str, int]) -> Assignments:
    assignments: Assignments = {member: [] for member in subscriptions}
    members = sorted(subscriptions)
    place = 0
    for topic in sorted(counts):
        if not any(topic in subscription.topics for subscription in subscriptions.values()):
            continue
        for index in range(counts[topic]):
            while topic not in subscriptions[members[place % len(members)]].topics:
                place += 1
            assignments[members[place % len(members)]].append((topic, index))
            place += 1
    return assignments


def _cooperative(subscriptions: Mapping[str, MemberSubscription], counts: Mapping[str, int]) -> Assignments:
    claimed: dict[Partition, str] = {}
    for member, subscription in sorted(subscriptions.items(), key=lambda each: (each[1].generation, each[0])):
        for partition in subscription.owned:
            claimed[partition] = member
    assignments = _sticky(subscriptions, counts, claimed)
    return {
        member: [each for each in found if claimed.get(each, member) == member] for member, found in assignments.items()
    }


def _sticky(
    subscriptions: Mapping[str, MemberSubscription], counts: Mapping[str, int], claimed: Mapping[Partition, str]
) -> Assignments:
    """Each member keeps what it has up to its fair share; the rest goes to the members with the fewest."""
    everything = [(topic, index) for topic in sorted(counts) for index in range(counts[topic])]
    wanted = [
        each for each in everything if any(each[0] in subscription.topics for subscription in subscriptions.values())
    ]
    most = -(-len(wanted) // max(len(subscriptions), 1))
    assignments: Assignments = {member: [] for member in subscriptions}
    left = []
    for each in wanted:
        owner = claimed.get(each)
        if owner is not None and each[0] in subscriptions[owner].topics and len(assignments[owner]) < most:
            assignments[owner].append(each)
        else:
            left.append(each)
    for each in left:
        readers = [member for member, subscription in subscriptions.items() if each[0] in subscription.topics]
        assignments[min(readers, key=lambda member: (len(assignments[member]), member))].append(each)
    return assignments


RANGE = "range"
ROUND_ROBIN = "roundrobin"
COOPERATIVE = "cooperative-sticky"
ASSIGNORS = {RANGE: _range, ROUND_ROBIN: _round_robin, COOPERATIVE: _cooperative}
