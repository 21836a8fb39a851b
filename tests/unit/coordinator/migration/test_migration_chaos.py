"""Members of both protocols join and leave in random order, and the group changes its protocol with them: no partition
is read by two, none is left out, and the log has the whole state.

A failing run prints its seed; `run(seed)` repeats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from classic_clients import ClassicClient, TopicIdPartitions
from harness.consumer_clients import ConsumerClient
from harness.depth import deep
from harness.in_memory_group_shard import InMemoryGroupShard

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.settings import GroupSettings

TOPICS = ("a", "b", "c")
STEPS = 150
ROUNDS = 80
"""Steps of a second each: crashed members are removed after 45."""


class Chaos:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        policy = self.rng.choice(("bidirectional", "bidirectional", "upgrade"))
        self.shard = InMemoryGroupShard(GroupSettings(initial_rebalance_delay_ms=0, consumer_migration_policy=policy))
        self.is_cooperative = self.rng.random() < 0.5
        self.classic_probability = self.rng.choice((0.5, 0.8))
        self.clients: dict[str, Any] = {}
        self.suspended: set[str] = set()
        self.members_created = 0
        self.happened: Counter[str] = Counter()
        self.protocol = ""
        """The group's type when it was last checked."""
        for name in TOPICS:
            self.shard.create_topic(name, self.rng.randint(1, 6))

    # --- events -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        events: list[tuple[Callable[[], None], int]] = [
            (self.send_request, 60),
            (self.react, 20),
            (self.lose_response, 4),
            (self.add_member, 6),
            (self.leave, 5),
            (self.crash, 1),
            (self.suspend, 1),
            (self.resume, 1),
            (self.restart, 4),
            (self.grow_topic, 1),
            (self.pass_time, 8),
            (self.move_coordinator, 2),
        ]
        self.rng.choices([event for event, _ in events], [weight for _, weight in events])[0]()

    def any_client(self) -> Any:
        awake = [client for name, client in self.clients.items() if name not in self.suspended]
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
            self.happened["response lost"] += 1

    def add_member(self) -> None:
        self.members_created += 1
        self.join(f"i{self.members_created}" if self.rng.random() < 0.3 else None)

    def join(self, instance_id: str | None) -> None:
        """Join with a random protocol, also if the previous member with the instance id used the other one."""
        self.members_created += 1
        name = f"m{self.members_created}"
        topics = self.rng.sample(TOPICS, self.rng.randint(1, 3))
        if self.rng.random() < self.classic_probability:
            self.clients[name] = ClassicClient(self.shard, name, topics, self.is_cooperative, instance_id)
        else:
            self.clients[name] = ConsumerClient(self.shard, name, topics, "", instance_id)  # type: ignore[arg-type]
        self.clients[name].send_request()

    def leave(self) -> None:
        if client := self.any_client():
            self.forget(client)
            client.leave()

    def crash(self) -> None:
        if client := self.any_client():
            self.forget(client)
            self.happened["crash"] += 1

    def restart(self) -> None:
        """Replace a static member; one with the consumer protocol must leave first, or it cannot be replaced."""
        client = self.any_client()
        if client is None or client.instance_id is None:
            return
        self.forget(client)
        if isinstance(client, ConsumerClient):
            client.leave(-2)
        self.join(client.instance_id)
        self.happened["restart"] += 1

    def forget(self, client: Any) -> None:
        self.clients = {name: each for name, each in self.clients.items() if each is not client}

    def suspend(self) -> None:
        client = self.any_client()
        # A classic group waits for a suspended static member, while the others share what it reads.
        if client is not None and client.instance_id is None:
            self.suspended |= {name for name, each in self.clients.items() if each is client}
            self.happened["suspension"] += 1

    def resume(self) -> None:
        if self.suspended:
            self.suspended.discard(self.rng.choice(sorted(self.suspended)))

    def grow_topic(self) -> None:
        name = self.rng.choice(TOPICS)
        self.shard.grow_topic(name, len(self.shard.current.image.topics[name].partitions) + 1)

    def pass_time(self) -> None:
        self.shard.advance(self.rng.choice((100, 1_000, 3_000)))

    def move_coordinator(self) -> None:
        self.shard.replay()
        self.happened["move of the coordinator"] += 1

    # --- invariants ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.shard.check_replay()
        group = self.shard.groups.state.groups.get("g")
        if group is not None and group.type_name != self.protocol:
            if self.protocol and not group.is_empty:
                self.happened[f"change to the {group.type_name} protocol"] += 1
            self.protocol = group.type_name
        read: dict[Any, str] = {}
        for name, client in self.clients.items():
            if not _is_member(group, client):
                continue
            for partition in client.owned:
                assert partition not in read, f"{name} and {read[partition]} both read {partition}"
                read[partition] = name
            if isinstance(group, ConsumerGroup):
                member = group.members[client.member_id]
                assigned = _flatten(member.assigned) | _flatten(member.pending_revocation)
                assert client.owned <= assigned, f"{name} reads a partition that another may get"

    def settle(self) -> None:
        """Stop all failures: soon every partition is read, in a group of the right kind."""
        self.suspended.clear()
        pending_steps = 0
        for _ in range(ROUNDS):
            pending_steps = 0
            for _ in range(4):
                pending_steps += sum(client.send_request() + client.react() for client in self.clients.values())
                self.check()
            self.shard.advance(1_000)
            self.check()
        assert not pending_steps
        alive = {name: client for name, client in self.clients.items() if not getattr(client, "is_dead", False)}
        group = self.shard.groups.state.groups["g"]
        assert group.state_name == ("Stable" if alive else "Empty")
        if alive and self.shard.settings.consumer_migration_policy == "bidirectional":
            is_classic = all(isinstance(client, ClassicClient) for client in alive.values())
            assert isinstance(group, ClassicGroup if is_classic else ConsumerGroup)
        assert {partition for client in alive.values() for partition in client.owned} == self.readable(alive)

    def readable(self, clients: dict[str, Any]) -> TopicIdPartitions:
        topics = [self.shard.current.image.topics[name] for client in clients.values() for name in client.topics]
        return frozenset((topic.id, index) for topic in topics for index in range(len(topic.partitions)))


def _is_member(group: Any, client: Any) -> bool:
    if group is None or client.member_id not in group.members:
        return False
    if isinstance(client, ConsumerClient):
        return isinstance(group, ConsumerGroup) and client.epoch > 0
    return not client.is_dead


def _flatten(partitions: Any) -> TopicIdPartitions:
    return frozenset((topic, index) for topic, indexes in partitions.items() for index in indexes)


def run(seed: int) -> Counter[str]:
    """Return how often each event happened that can do harm."""
    chaos = Chaos(seed)
    for _ in range(STEPS):
        chaos.step()
        chaos.check()
    chaos.add_member()
    chaos.settle()
    return chaos.happened


@pytest.mark.parametrize("seed", range(deep(4, quick=12)))
def test_every_partition_is_read_by_exactly_one_member(seed: int) -> None:
    assert run(seed), "nothing happened that can do harm"


def test_the_runs_have_every_event_that_can_do_harm() -> None:
    happened = sum(map(run, range(5)), Counter())
    assert set(happened) == {
        "response lost", "crash", "restart", "suspension", "move of the coordinator",
        "change to the classic protocol", "change to the consumer protocol",
    }  # fmt: skip
