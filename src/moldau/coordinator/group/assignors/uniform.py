"""The `uniform` assignor: members get equally many partitions, as far as subscriptions allow, and keep what they have.

Topics with exactly the same subscribers form a *pool*: their partitions are interchangeable. If all members subscribe
to the same topics, there is one pool, and balancing it once moves as few partitions as possible. If subscriptions
overlap, balancing one pool may unbalance another, so the pools are balanced in turn until nothing moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors.member import Assignment, AssignorMember

ROUNDS_MAX: Final = 16
"""Load may have to move along a chain of members, each of which shares a topic with the next. After this many rounds
the rest is left for the next assignment, so that one group does not block the coordinator."""

Slot = tuple[int, Uuid]
"""A partition and its topic, in this order: a member that gives away its last slots then gives from all topics in
turn."""


@dataclass(slots=True)
class Pool:
    subscribers: list[str]
    topics: list[Uuid]
    free: list[Slot] = field(default_factory=list)
    """Unassigned partitions, sorted by topic, so that each topic is spread over all members that get some."""
    held: dict[str, list[Slot]] = field(default_factory=dict)
    """The partitions of each member. The last is given away first, so that a member keeps what it had before."""


class UniformAssignor:
    name: Final = "uniform"

    def assign(self, members: Mapping[str, AssignorMember], partitions: Mapping[Uuid, int]) -> Assignment:
        pools = _pools(members, partitions)
        sizes = dict.fromkeys(members, 0)
        _keep(pools, members, partitions, sizes)
        for pool in pools:
            _hand_out(pool, sizes)
        for _ in range(ROUNDS_MAX):
            if not sum(_balance(pool, sizes) for pool in pools):
                break
        return _assignment(members, pools)


def _pools(members: Mapping[str, AssignorMember], partitions: Mapping[Uuid, int]) -> list[Pool]:
    """Return the pools. Those with the most partitions per member come first, because they leave the least choice."""
    by_subscription: dict[frozenset[Uuid], list[str]] = {}
    for member_id, member in members.items():
        by_subscription.setdefault(member.topics, []).append(member_id)
    readers: dict[Uuid, list[frozenset[Uuid]]] = {}
    for subscription in by_subscription:
        for topic in subscription:
            if partitions.get(topic):
                readers.setdefault(topic, []).append(subscription)
    topics: dict[tuple[frozenset[Uuid], ...], list[Uuid]] = {}
    for topic in sorted(readers):
        topics.setdefault(tuple(readers[topic]), []).append(topic)
    pools = [Pool(sorted(_subscribers(by_subscription, key)), pooled) for key, pooled in topics.items()]

    def order(pool: Pool) -> tuple[float, int, Uuid]:
        total = sum(partitions[topic] for topic in pool.topics)
        return -total / len(pool.subscribers), len(pool.subscribers), pool.topics[0]

    return sorted(pools, key=order)


def _subscribers(
    by_subscription: Mapping[frozenset[Uuid], list[str]], subscriptions: Iterable[frozenset[Uuid]]
) -> Iterable[str]:
    return (member_id for subscription in subscriptions for member_id in by_subscription[subscription])


def _keep(
    pools: Iterable[Pool],
    members: Mapping[str, AssignorMember],
    partitions: Mapping[Uuid, int],
    sizes: dict[str, int],
) -> None:
    """Let members keep what they have and still subscribe to; the rest is free."""
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
    """Give each free partition to the member with the fewest."""
    takers = [(sizes[member_id], member_id) for member_id in pool.subscribers]
    heapify(takers)
    for slot in pool.free:
        size, member_id = takers[0]
        pool.held.setdefault(member_id, []).append(slot)
        sizes[member_id] = size + 1
        heapreplace(takers, (size + 1, member_id))


def _balance(pool: Pool, sizes: dict[str, int]) -> int:
    """Move partitions from the member with the most to the one with the fewest until they differ by at most one. Return
    how many were moved.

    The maximum only falls, the minimum only rises, and they do not cross, so no giver ever becomes a taker. Each heap
    therefore needs only its own updates.
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
    partitions: dict[str, dict[Uuid, list[int]]] = {member_id: {} for member_id in members}
    for pool in pools:
        for member_id, slots in pool.held.items():
            for partition, topic in slots:
                partitions[member_id].setdefault(topic, []).append(partition)
    return {
        member_id: {topic: frozenset(numbers) for topic, numbers in topics.items()}
        for member_id, topics in partitions.items()
    }
