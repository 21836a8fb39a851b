"""The `simple` assignor of share groups (KIP-932): members get equally many partitions, and keep what they have.

If there are more members than partitions, members share them: each partition has equally many readers. If all members
subscribe to the same topics, all their partitions are dealt together, otherwise those of each topic by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors.member import Assignment

SIMPLE: Final = "simple"


class ShareSubscriber(NamedTuple):
    topics: frozenset[Uuid]
    assigned: Mapping[Uuid, frozenset[int]]
    """Its target of the last assignment."""


class Place(NamedTuple):
    topic_id: Uuid
    partition: int


def assign(members: Mapping[str, ShareSubscriber], partitions: Mapping[Uuid, Collection[int]]) -> Assignment:
    """Assign every partition to members that subscribe to its topic. `partitions` has those that can be read, by topic.
    The order of `members` does not change the result."""
    held: dict[str, set[Place]] = {member_id: set() for member_id in members}
    for topics, subscribers in _pools(members):
        places = [Place(topic, index) for topic in topics for index in sorted(partitions.get(topic, ()))]
        if places:
            for member_id, dealt in _Pool(places, subscribers, members).deal().items():
                held[member_id] |= dealt
    return {member_id: _by_topic(places) for member_id, places in held.items()}


def _pools(members: Mapping[str, ShareSubscriber]) -> Iterable[tuple[Sequence[Uuid], Sequence[str]]]:
    """Yield topics that are dealt together, with their subscribers."""
    member_ids = sorted(members)
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) == 1:
        yield sorted(subscriptions.pop()), member_ids
        return
    for topic in sorted(frozenset().union(*subscriptions)):
        yield [topic], [member_id for member_id in member_ids if topic in members[member_id].topics]


def _by_topic(places: Iterable[Place]) -> dict[Uuid, frozenset[int]]:
    found: dict[Uuid, set[int]] = {}
    for topic_id, partition in places:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


class _Pool:
    """Some partitions that are dealt to the same members: each partition has `sharing` readers in the end, and each
    member its share of them, or one more than others."""

    def __init__(
        self, places: Sequence[Place], member_ids: Sequence[str], members: Mapping[str, ShareSubscriber]
    ) -> None:
        self._sharing = -(-len(member_ids) // len(places))
        self._readers: dict[Place, set[str]] = {place: set() for place in places}
        self._held: dict[str, set[Place]] = {member_id: set() for member_id in member_ids}
        topics = dict.fromkeys(place.topic_id for place in places)
        self._before = {
            member_id: [
                place
                for topic_id in topics
                for place in (Place(topic_id, index) for index in sorted(members[member_id].assigned.get(topic_id, ())))
                if place in self._readers
            ]
            for member_id in member_ids
        }
        self._shares = self._fair_shares()

    def _fair_shares(self) -> dict[str, int]:
        """Return how many partitions each member gets. Those that have the most get one more than others."""
        share, extra = divmod(self._sharing * len(self._readers), len(self._held))
        by_size = sorted(self._held, key=lambda member_id: -len(self._before[member_id]))
        return {member_id: share + (position < extra) for position, member_id in enumerate(by_size)}

    def deal(self) -> Mapping[str, set[Place]]:
        self._keep()
        unfilled = deque(member_id for member_id, held in self._held.items() if len(held) < self._shares[member_id])
        for place in sorted(self._readers, key=lambda place: len(self._readers[place])):
            while len(self._readers[place]) < self._sharing:
                self._fill(place, unfilled)
        return self._held

    def _keep(self) -> None:
        """Let members keep what they have, as far as their shares and those of the partitions allow it. A partition
        with few readers is kept first: others can be given to somebody else more easily."""
        popularity = dict.fromkeys(self._readers, 0)
        for places in self._before.values():
            for place in places:
                popularity[place] += 1
        for member_id, places in self._before.items():
            for place in sorted(places, key=lambda place: popularity[place]):
                if len(self._held[member_id]) == self._shares[member_id]:
                    break
                if len(self._readers[place]) < self._sharing:
                    self._give(place, member_id)

    def _fill(self, place: Place, unfilled: deque[str]) -> None:
        """Give the partition one more reader. There is always a member with less than its share, because there are as
        many shares as readers wanted."""
        for _ in range(len(unfilled)):
            member_id = unfilled[0]
            unfilled.rotate(-1)
            if member_id not in self._readers[place]:
                self._give(place, member_id)
                break
        else:
            member_id = unfilled[-1]
            self._swap(place, member_id)
        if len(self._held[member_id]) == self._shares[member_id]:
            unfilled.remove(member_id)

    def _swap(self, place: Place, member_id: str) -> None:
        """All members with less than their share read the partition already: let another one read it, and give one of
        its other partitions to this member. There is one, because the partition has fewer readers than that."""
        readers = self._readers[place]
        for other in sorted(self._readers.keys() - self._held[member_id]):
            for reader in sorted(self._readers[other] - readers):
                self._readers[other].discard(reader)
                self._held[reader].discard(other)
                self._give(other, member_id)
                self._give(place, reader)
                return
        raise AssertionError("no partition can be swapped")

    def _give(self, place: Place, member_id: str) -> None:
        self._readers[place].add(member_id)
        self._held[member_id].add(place)
