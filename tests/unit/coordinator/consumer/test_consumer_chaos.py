"""Random events in random order: every partition is read by exactly one member, and the log has the whole state.

A failing run prints its seed; `run(seed)` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from harness.consumer_clients import ConsumerClient, TopicIdPartitions
from harness.depth import deep
from harness.in_memory_consumer_shard import InMemoryConsumerShard

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
        self.shard = InMemoryConsumerShard()
        self.clients: dict[str, ConsumerClient] = {}
        self.suspended: set[str] = set()
        self.members_created = 0
        for name in TOPICS[:3]:
            self.shard.create_topic(name, self.rng.randint(1, 6))

    # --- events -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        events: list[tuple[Callable[[], None], int]] = [
            (self.send_request, 40),
            (self.react, 40),
            (self.lose_response, 6),
            (self.add_member, 4),
            (self.leave, 2),
            (self.crash, 1),
            (self.suspend, 2),
            (self.resume, 2),
            (self.restart_static_member, 2),
            (self.resubscribe, 2),
            (self.change_topics, 2),
            (self.pass_time, 8),
            (self.move_coordinator, 2),
        ]
        self.rng.choices([event for event, _ in events], [weight for _, weight in events])[0]()

    def any_client(self) -> ConsumerClient | None:
        awake = [client for client in self.clients.values() if client.member_id not in self.suspended]
        return self.rng.choice(awake) if awake else None

    def send_request(self) -> None:
        if client := self.any_client():
            client.send_request()

    def react(self) -> None:
        if client := self.any_client():
            client.react()

    def lose_response(self) -> None:
        if client := self.any_client():
            client.send_request(is_response_lost=True)

    def add_member(self) -> None:
        self.members_created += 1
        instance = f"i{self.members_created}" if self.rng.random() < 0.3 else None
        self.join(f"m{self.members_created}", instance)

    def join(self, member_id: str, instance_id: str | None) -> None:
        topics, regex = self.subscription()
        client = ConsumerClient(self.shard, member_id, topics, regex, instance_id)
        self.clients[member_id] = client
        client.send_request()

    def subscription(self) -> tuple[list[str], str]:
        return self.rng.sample(TOPICS[:4], self.rng.randint(0, 3)), self.rng.choice(PATTERNS)

    def leave(self) -> None:
        if client := self.any_client():
            del self.clients[client.member_id]
            client.leave()

    def crash(self) -> None:
        if client := self.any_client():
            del self.clients[client.member_id]

    def suspend(self) -> None:
        if client := self.any_client():
            self.suspended.add(client.member_id)

    def resume(self) -> None:
        if self.suspended:
            self.suspended.discard(self.rng.choice(sorted(self.suspended)))

    def restart_static_member(self) -> None:
        """Restart a static member: it leaves, and comes back with another member id, sooner or later or never."""
        client = self.any_client()
        if client is None or client.instance_id is None:
            return
        del self.clients[client.member_id]
        client.leave(STATIC_LEAVE_EPOCH)
        if self.rng.random() < 0.8:
            self.members_created += 1
            self.join(f"m{self.members_created}", client.instance_id)

    def resubscribe(self) -> None:
        if client := self.any_client():
            client.subscribe(*self.subscription())

    def change_topics(self) -> None:
        name = self.rng.choice(TOPICS)
        topics = self.shard.current.image.topics
        if name not in topics:
            self.shard.create_topic(name, self.rng.randint(1, 6))
        elif self.rng.random() < 0.5:
            self.shard.delete_topic(name)
        else:
            self.shard.grow_topic(name, len(topics[name].partitions) + self.rng.randint(1, 3))

    def pass_time(self) -> None:
        self.shard.advance(self.rng.choice((100, 3_000, 12_000)))

    def move_coordinator(self) -> None:
        before = snapshot(self.shard)
        self.shard.replay(compacted=self.rng.random() < 0.5)
        assert snapshot(self.shard) == before

    # --- invariants ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        group = self.shard.state.groups.get("g")
        if not isinstance(group, ConsumerGroup):
            return
        owned = [
            partition
            for member in group.members.values()
            for partition in _flatten(member.assigned, member.pending_revocation)
        ]
        assert len(owned) == len(set(owned)), "a partition has two owners"
        assert group.owners.keys() == set(owned)
        for client in self.clients.values():
            member = group.members.get(client.member_id)
            if member is not None and client.epoch > 0:
                assigned = set(_flatten(member.assigned, member.pending_revocation))
                assert client.owned <= assigned, f"{client.member_id} reads a partition that another may get"

    def settle(self) -> None:
        """Stop all failures: soon every member has its target, and every partition is read."""
        self.suspended.clear()
        pending_steps = 0
        for _ in range(ROUNDS):
            pending_steps = sum(client.send_request() + client.react() for client in self.clients.values())
            self.shard.advance(1_000)
            self.check()
        assert not pending_steps
        group = self.shard.group()
        assert group.state_name == ("Stable" if self.clients else "Empty")
        for member_id, client in self.clients.items():
            assigned = set(_flatten(group.members[member_id].assigned))
            assert (
                client.owned == assigned == {(t, i) for t, found in group.target_of(member_id).items() for i in found}
            )
        assert _owned(self.clients) == self.readable(group)

    def readable(self, group: ConsumerGroup) -> TopicIdPartitions:
        image = self.shard.current.image
        topics = [image.topics[name] for name in group.subscriptions.topics if name in image.topics]
        return frozenset((topic.id, index) for topic in topics for index in range(len(topic.partitions)))


def _flatten(*all_partitions: Any) -> list[tuple[bytes, int]]:
    return [(topic, index) for found in all_partitions for topic, indexes in found.items() for index in indexes]


def _owned(clients: dict[str, ConsumerClient]) -> TopicIdPartitions:
    return frozenset(partition for client in clients.values() for partition in client.owned)


def snapshot(shard: InMemoryConsumerShard) -> dict[str, Any]:
    """Return the whole state that comes from the log, including counts."""
    return {group_id: _group_state(group) for group_id, group in shard.state.groups.items()} | {
        "subscribed_groups": shard.groups._subscribed_groups
    }


def _group_state(group: Any) -> dict[str, Any]:
    subscriptions = vars(group.subscriptions)
    return {
        **{
            name: value
            for name, value in vars(group).items()
            if name not in ("must_resolve_topics", "unconfirmed", "subscriptions")
        },
        **{name: value for name, value in subscriptions.items() if name != "_subscribed_groups"},
    }


def run(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.add_member()
    for _ in range(STEPS):
        chaos.step()
        chaos.check()
    chaos.settle()
    chaos.move_coordinator()
    chaos.settle()


@pytest.mark.parametrize("seed", range(deep(4, quick=12)))
@pytest.mark.needs_re2
def test_every_partition_is_read_by_exactly_one_member(seed: int) -> None:
    run(seed)
