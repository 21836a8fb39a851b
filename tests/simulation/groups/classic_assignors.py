"""How the leader of a classic group assigns partitions: Kafka's three assignors, written from their descriptions.

The cooperative one never assigns a partition that another member still claims: it leaves it unassigned for one
generation, in which the old owner revokes it, and assigns it in the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Partition = tuple[str, int]
Shares = dict[str, list[Partition]]


class Wish(NamedTuple):
    """What a member sends to the leader."""

    topics: frozenset[str]
    owned: frozenset[Partition]
    generation: int


def share_out(protocol: str, wishes: Mapping[str, Wish], counts: Mapping[str, int]) -> Shares:
    return ASSIGNORS[protocol](wishes, counts)


def _range(wishes: Mapping[str, Wish], counts: Mapping[str, int]) -> Shares:
    shares: Shares = {member: [] for member in wishes}
    for topic in sorted(counts):
        readers = sorted(member for member, wish in wishes.items() if topic in wish.topics)
        if not readers:
            continue
        each, more = divmod(counts[topic], len(readers))
        first = 0
        for place, member in enumerate(readers):
            count = each + (place < more)
            shares[member] += [(topic, index) for index in range(first, first + count)]
            first += count
    return shares


def _round_robin(wishes: Mapping[str, Wish], counts: Mapping[str, int]) -> Shares:
    shares: Shares = {member: [] for member in wishes}
    members = sorted(wishes)
    place = 0
    for topic in sorted(counts):
        if not any(topic in wish.topics for wish in wishes.values()):
            continue
        for index in range(counts[topic]):
            while topic not in wishes[members[place % len(members)]].topics:
                place += 1
            shares[members[place % len(members)]].append((topic, index))
            place += 1
    return shares


def _cooperative(wishes: Mapping[str, Wish], counts: Mapping[str, int]) -> Shares:
    claimed: dict[Partition, str] = {}
    for member, wish in sorted(wishes.items(), key=lambda each: (each[1].generation, each[0])):
        for partition in wish.owned:
            claimed[partition] = member
    shares = _sticky(wishes, counts, claimed)
    return {member: [each for each in found if claimed.get(each, member) == member] for member, found in shares.items()}


def _sticky(wishes: Mapping[str, Wish], counts: Mapping[str, int], claimed: Mapping[Partition, str]) -> Shares:
    """Each member keeps what it has up to its fair share; the rest goes to the members with the fewest."""
    everything = [(topic, index) for topic in sorted(counts) for index in range(counts[topic])]
    wanted = [each for each in everything if any(each[0] in wish.topics for wish in wishes.values())]
    most = -(-len(wanted) // max(len(wishes), 1))
    shares: Shares = {member: [] for member in wishes}
    left = []
    for each in wanted:
        owner = claimed.get(each)
        if owner is not None and each[0] in wishes[owner].topics and len(shares[owner]) < most:
            shares[owner].append(each)
        else:
            left.append(each)
    for each in left:
        readers = [member for member, wish in wishes.items() if each[0] in wish.topics]
        shares[min(readers, key=lambda member: (len(shares[member]), member))].append(each)
    return shares


RANGE = "range"
ROUND_ROBIN = "roundrobin"
COOPERATIVE = "cooperative-sticky"
ASSIGNORS = {RANGE: _range, ROUND_ROBIN: _round_robin, COOPERATIVE: _cooperative}
