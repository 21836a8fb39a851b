"""Random events in random order: every partition is read by exactly one member, and the log has the whole state.

A failing run prints its seed; `run(seed)` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from consumer_clients import ConsumerClient, Slots
from consumer_rooms import ConsumerRooms

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import STATIC_LEAVE_EPOCH

TOPICS = ("a", "b", "c", "ab", "internal")
PATTERNS = ("", "", "a.*", "b|c", "[^i]+")
STEPS = 120
ROUNDS = 60
"""Steps of a second each: crashed members are removed after 45."""


class Chaos:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.rooms = ConsumerRooms()
        self.clients: dict[str, ConsumerClient] = {}
        self.stalled: set[str] = set()
        self.came = 0
        for name in TOPICS[:3]:
            self.rooms.create_topic(name, self.rng.randint(1, 6))

    # --- events -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        deeds: list[tuple[Callable[[], None], int]] = [
            (self.beat, 40),
            (self.react, 40),
            (self.lose_answer, 6),
            (self.come, 4),
            (self.leave, 2),
            (self.crash, 1),
            (self.stall, 2),
            (self.go_on, 2),
            (self.go_away, 2),
            (self.resubscribe, 2),
            (self.change_topics, 2),
            (self.pass_time, 8),
            (self.take_over, 2),
        ]
        self.rng.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]()

    def any_client(self) -> ConsumerClient | None:
        awake = [client for client in self.clients.values() if client.member_id not in self.stalled]
        return self.rng.choice(awake) if awake else None

    def beat(self) -> None:
        if client := self.any_client():
            client.beat()

    def react(self) -> None:
        if client := self.any_client():
            client.react()

    def lose_answer(self) -> None:
        if client := self.any_client():
            client.beat(is_lost=True)

    def come(self) -> None:
        self.came += 1
        instance = f"i{self.came}" if self.rng.random() < 0.3 else None
        self.join(f"m{self.came}", instance)

    def join(self, member_id: str, instance_id: str | None) -> None:
        topics, regex = self.subscription()
        client = ConsumerClient(self.rooms, member_id, topics, regex, instance_id)
        self.clients[member_id] = client
        client.beat()

    def subscription(self) -> tuple[list[str], str]:
        return self.rng.sample(TOPICS[:4], self.rng.randint(0, 3)), self.rng.choice(PATTERNS)

    def leave(self) -> None:
        if client := self.any_client():
            del self.clients[client.member_id]
            client.leave()

    def crash(self) -> None:
        if client := self.any_client():
            del self.clients[client.member_id]

    def stall(self) -> None:
        if client := self.any_client():
            self.stalled.add(client.member_id)

    def go_on(self) -> None:
        if self.stalled:
            self.stalled.discard(self.rng.choice(sorted(self.stalled)))

    def go_away(self) -> None:
        """Restart a static member: it leaves, and comes back with another member id, sooner or later or never."""
        client = self.any_client()
        if client is None or client.instance_id is None:
            return
        del self.clients[client.member_id]
        client.leave(STATIC_LEAVE_EPOCH)
        if self.rng.random() < 0.8:
            self.came += 1
            self.join(f"m{self.came}", client.instance_id)

    def resubscribe(self) -> None:
        if client := self.any_client():
            client.subscribe(*self.subscription())

    def change_topics(self) -> None:
        name = self.rng.choice(TOPICS)
        topics = self.rooms.current.image.topics
        if name not in topics:
            self.rooms.create_topic(name, self.rng.randint(1, 6))
        elif self.rng.random() < 0.5:
            self.rooms.delete_topic(name)
        else:
            self.rooms.grow_topic(name, len(topics[name].partitions) + self.rng.randint(1, 3))

    def pass_time(self) -> None:
        self.rooms.advance(self.rng.choice((100, 3_000, 12_000)))

    def take_over(self) -> None:
        before = snapshot(self.rooms)
        self.rooms.replay(compacted=self.rng.random() < 0.5)
        assert snapshot(self.rooms) == before

    # --- invariants ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        group = self.rooms.state.groups.get("g")
        if not isinstance(group, ConsumerGroup):
            return
        held = [
            slot for member in group.members.values() for slot in _slots(member.assigned, member.pending_revocation)
        ]
        assert len(held) == len(set(held)), "a partition has two owners"
        assert group.owners.keys() == set(held)
        for client in self.clients.values():
            member = group.members.get(client.member_id)
            if member is not None and client.epoch > 0:
                its = set(_slots(member.assigned, member.pending_revocation))
                assert client.owned <= its, f"{client.member_id} reads what may be given to another"

    def settle(self) -> None:
        """Stop all failures: soon every member has its target, and every partition is read."""
        self.stalled.clear()
        moved = 0
        for _ in range(ROUNDS):
            moved = sum(client.beat() + client.react() for client in self.clients.values())
            self.rooms.advance(1_000)
            self.check()
        assert not moved
        group = self.rooms.group()
        assert group.state_name == ("Stable" if self.clients else "Empty")
        for member_id, client in self.clients.items():
            its = set(_slots(group.members[member_id].assigned))
            assert client.owned == its == {(t, i) for t, found in group.target_of(member_id).items() for i in found}
        assert _owned(self.clients) == self.readable(group)

    def readable(self, group: ConsumerGroup) -> Slots:
        image = self.rooms.current.image
        topics = [image.topics[name] for name in group.subscriptions.topics if name in image.topics]
        return frozenset((topic.id, index) for topic in topics for index in range(len(topic.partitions)))


def _slots(*all_partitions: Any) -> list[tuple[bytes, int]]:
    return [(topic, index) for found in all_partitions for topic, indexes in found.items() for index in indexes]


def _owned(clients: dict[str, ConsumerClient]) -> Slots:
    return frozenset(slot for client in clients.values() for slot in client.owned)


def snapshot(rooms: ConsumerRooms) -> dict[str, Any]:
    """Return the whole state that comes from the log, including counts."""
    return {group_id: _told(group) for group_id, group in rooms.state.groups.items()} | {
        "subscribed_groups": rooms.groups._subscribed_groups
    }


def _told(group: Any) -> dict[str, Any]:
    subscriptions = vars(group.subscriptions)
    return {
        **{name: value for name, value in vars(group).items() if name not in ("must_resolve_topics", "subscriptions")},
        **{name: value for name, value in subscriptions.items() if name != "_subscribed_groups"},
    }


def run(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.come()
    for _ in range(STEPS):
        chaos.step()
        chaos.check()
    chaos.settle()
    chaos.take_over()
    chaos.settle()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.needs_re2
def test_every_partition_is_read_by_exactly_one_member(seed: int) -> None:
    run(seed)
