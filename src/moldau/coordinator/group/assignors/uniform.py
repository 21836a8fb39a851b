"""The `uniform` assignor: everyone has equally much, as far as subscriptions allow, and keeps what it has.

Topics with the very same subscribers form a *pool*: their partitions can stand in for one another. Where all members
subscribe to the same topics there is one pool, and levelling it once moves as little as possible. Where subscriptions
overlap, levelling one pool may tip another, so pools are levelled in turn until nothing moves any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors.member import Assignment, AssignorMember

ROUNDS_MAX: Final = 16
"""Load may have to seep through a long chain of members, each of whom shares a topic with the next. What is left after
so many rounds is left for the next assignment: a coordinator must not stand still over one group."""

Slot = tuple[int, Uuid]
"""A partition and its topic, in this order: whoever gives up the last of its slots does so of all topics in turn."""


@dataclass(slots=True)
class Pool:
    subscribers: list[str]
    topics: list[Uuid]
    free: list[Slot] = field(default_factory=list)
    """Partitions that nobody has, one topic after the other, so that each is spread over all who take."""
    held: dict[str, list[Slot]] = field(default_factory=dict)
    """A member's partitions. The last is given away first: what came last goes first, what it had before stays."""


class UniformAssignor:
    name: Final = "uniform"

    def assign(self, members: Mapping[str, AssignorMember], partitions: Mapping[Uuid, int]) -> Assignment:
        pools = _pools(members, partitions)
        sizes = dict.fromkeys(members, 0)
        _keep(pools, members, partitions, sizes)
        for pool in pools:
            _hand_out(pool, sizes)
        for _ in range(ROUNDS_MAX):
            if not sum(_level(pool, sizes) for pool in pools):
                break
        return _assignment(members, pools)


def _pools(members: Mapping[str, AssignorMember], partitions: Mapping[Uuid, int]) -> list[Pool]:
    """Those with the most partitions for a member come first: they leave the least choice."""
    alike: dict[frozenset[Uuid], list[str]] = {}
    for member_id, member in members.items():
        alike.setdefault(member.topics, []).append(member_id)
    readers: dict[Uuid, list[frozenset[Uuid]]] = {}
    for subscription in alike:
        for topic in subscription:
            if partitions.get(topic):
                readers.setdefault(topic, []).append(subscription)
    topics: dict[tuple[frozenset[Uuid], ...], list[Uuid]] = {}
    for topic in sorted(readers):
        topics.setdefault(tuple(readers[topic]), []).append(topic)
    pools = [Pool(sorted(_joined(alike, key)), pooled) for key, pooled in topics.items()]

    def order(pool: Pool) -> tuple[float, int, Uuid]:
        total = sum(partitions[topic] for topic in pool.topics)
        return -total / len(pool.subscribers), len(pool.subscribers), pool.topics[0]

    return sorted(pools, key=order)


def _joined(alike: Mapping[frozenset[Uuid], list[str]], subscriptions: Iterable[frozenset[Uuid]]) -> Iterable[str]:
    return (member_id for subscription in subscriptions for member_id in alike[subscription])


def _keep(
    pools: Iterable[Pool],
    members: Mapping[str, AssignorMember],
    partitions: Mapping[Uuid, int],
    sizes: dict[str, int],
) -> None:
    """Members keep what they have, if they still subscribe to it; the rest is free."""
    for pool in pools:
        free = {(partition, topic) for topic in pool.topics for partition in range(partitions[topic])}
        topics = frozenset(pool.topics)
        for member_id in pool.subscribers:
            assigned = members[member_id].assigned
            slots = {(partition, topic) for topic in assigned.keys() & topics for partition in assigned[topic]} & free
            if slots:
                free -= slots
                pool.held[member_id] = sorted(slots)
                sizes[member_id] += len(slots)
        pool.free = sorted(free, key=_by_topic)


def _by_topic(slot: Slot) -> tuple[Uuid, int]:
    partition, topic = slot
    return topic, partition


def _hand_out(pool: Pool, sizes: dict[str, int]) -> None:
    """Each free partition goes to whoever has the least."""
    takers = [(sizes[member_id], member_id) for member_id in pool.subscribers]
    heapify(takers)
    for slot in pool.free:
        size, member_id = takers[0]
        pool.held.setdefault(member_id, []).append(slot)
        sizes[member_id] = size + 1
        heapreplace(takers, (size + 1, member_id))


def _level(pool: Pool, sizes: dict[str, int]) -> int:
    """Moves from whoever has the most to whoever has the least, until they differ by one; how many were moved.

    The most only falls and the least only rises, and they do not pass each other: no giver is ever a taker. So each
    heap need only follow its own moves.
    """
    takers = [(sizes[member_id], member_id) for member_id in pool.subscribers]
    givers = [(-sizes[member_id], member_id) for member_id, slots in pool.held.items() if slots]
    heapify(takers)
    heapify(givers)
    moved = 0
    while givers:
        least, taker = takers[0]
        most, giver = -givers[0][0], givers[0][1]
        if most - least < 2:
            break
        pool.held.setdefault(taker, []).append(pool.held[giver].pop())
        heapreplace(takers, (least + 1, taker))
        sizes[taker] = least + 1
        sizes[giver] = most - 1
        if pool.held[giver]:
            heapreplace(givers, (1 - most, giver))
        else:
            heappop(givers)
        moved += 1
    return moved


def _assignment(members: Mapping[str, AssignorMember], pools: Iterable[Pool]) -> Assignment:
    gathered: dict[str, dict[Uuid, list[int]]] = {member_id: {} for member_id in members}
    for pool in pools:
        for member_id, slots in pool.held.items():
            for partition, topic in slots:
                gathered[member_id].setdefault(topic, []).append(partition)
    return {
        member_id: {topic: frozenset(numbers) for topic, numbers in topics.items()}
        for member_id, topics in gathered.items()
    }
