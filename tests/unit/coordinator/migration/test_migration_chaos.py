"""Members of both protocols join and leave in random order, and the group changes its protocol with them: no partition
is read by two, none is left out, and the log has the whole state.

A failing run prints its seed; `run(seed)` repeats it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "consumer"))

from classic_clients import ClassicClient, Slots
from consumer_clients import ConsumerClient
from migration_rooms import MigrationRooms

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
        self.rooms = MigrationRooms(GroupSettings(initial_rebalance_delay_ms=0, consumer_migration_policy=policy))
        self.is_cooperative = self.rng.random() < 0.5
        self.likes_classic = self.rng.choice((0.5, 0.8))
        self.clients: dict[str, Any] = {}
        self.stalled: set[str] = set()
        self.came = 0
        for name in TOPICS:
            self.rooms.create_topic(name, self.rng.randint(1, 6))

    # --- events -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        deeds: list[tuple[Callable[[], None], int]] = [
            (self.beat, 60),
            (self.react, 20),
            (self.lose_answer, 4),
            (self.come, 6),
            (self.leave, 5),
            (self.crash, 1),
            (self.stall, 1),
            (self.go_on, 1),
            (self.restart, 4),
            (self.grow, 1),
            (self.pass_time, 8),
            (self.take_over, 2),
        ]
        self.rng.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])[0]()

    def any_client(self) -> Any:
        awake = [client for name, client in self.clients.items() if name not in self.stalled]
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
        self.join(f"i{self.came}" if self.rng.random() < 0.3 else None)

    def join(self, instance_id: str | None) -> None:
        """Join with either protocol, whichever the previous member with the instance id used."""
        self.came += 1
        name = f"m{self.came}"
        topics = self.rng.sample(TOPICS, self.rng.randint(1, 3))
        if self.rng.random() < self.likes_classic:
            self.clients[name] = ClassicClient(self.rooms, name, topics, self.is_cooperative, instance_id)
        else:
            self.clients[name] = ConsumerClient(self.rooms, name, topics, "", instance_id)  # type: ignore[arg-type]
        self.clients[name].beat()

    def leave(self) -> None:
        if client := self.any_client():
            self.forget(client)
            client.leave()

    def crash(self) -> None:
        if client := self.any_client():
            self.forget(client)

    def restart(self) -> None:
        """Replace a static member; one with the consumer protocol must leave first, or it cannot be replaced."""
        client = self.any_client()
        if client is None or client.instance_id is None:
            return
        self.forget(client)
        if isinstance(client, ConsumerClient):
            client.leave(-2)
        self.join(client.instance_id)

    def forget(self, client: Any) -> None:
        self.clients = {name: each for name, each in self.clients.items() if each is not client}

    def stall(self) -> None:
        client = self.any_client()
        # A classic group waits for a suspended static member, while the others share what it reads.
        if client is not None and client.instance_id is None:
            self.stalled |= {name for name, each in self.clients.items() if each is client}

    def go_on(self) -> None:
        if self.stalled:
            self.stalled.discard(self.rng.choice(sorted(self.stalled)))

    def grow(self) -> None:
        name = self.rng.choice(TOPICS)
        self.rooms.grow_topic(name, len(self.rooms.current.image.topics[name].partitions) + 1)

    def pass_time(self) -> None:
        self.rooms.advance(self.rng.choice((100, 1_000, 3_000)))

    def take_over(self) -> None:
        self.rooms.replay()

    # --- invariants ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.rooms.agree()
        group = self.rooms.groups.state.groups.get("g")
        read: dict[Any, str] = {}
        for name, client in self.clients.items():
            if not _is_member(group, client):
                continue
            for slot in client.owned:
                assert slot not in read, f"{name} and {read[slot]} both read {slot}"
                read[slot] = name
            if isinstance(group, ConsumerGroup):
                member = group.members[client.member_id]
                its = _slots(member.assigned) | _slots(member.pending_revocation)
                assert client.owned <= its, f"{name} reads what may be given to another"

    def settle(self) -> None:
        """Stop all failures: soon every partition is read, in a group of the right kind."""
        self.stalled.clear()
        moved = 0
        for _ in range(ROUNDS):
            moved = 0
            for _ in range(4):
                moved += sum(client.beat() + client.react() for client in self.clients.values())
                self.check()
            self.rooms.advance(1_000)
            self.check()
        assert not moved
        alive = {name: client for name, client in self.clients.items() if not getattr(client, "is_dead", False)}
        group = self.rooms.groups.state.groups["g"]
        assert group.state_name == ("Stable" if alive else "Empty")
        if alive and self.rooms.settings.consumer_migration_policy == "bidirectional":
            is_classic = all(isinstance(client, ClassicClient) for client in alive.values())
            assert isinstance(group, ClassicGroup if is_classic else ConsumerGroup)
        assert {slot for client in alive.values() for slot in client.owned} == self.readable(alive)

    def readable(self, clients: dict[str, Any]) -> Slots:
        topics = [self.rooms.current.image.topics[name] for client in clients.values() for name in client.topics]
        return frozenset((topic.id, index) for topic in topics for index in range(len(topic.partitions)))


def _is_member(group: Any, client: Any) -> bool:
    if group is None or client.member_id not in group.members:
        return False
    if isinstance(client, ConsumerClient):
        return isinstance(group, ConsumerGroup) and client.epoch > 0
    return not client.is_dead


def _slots(partitions: Any) -> Slots:
    return frozenset((topic, index) for topic, indexes in partitions.items() for index in indexes)


def run(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(STEPS):
        chaos.step()
        chaos.check()
    chaos.come()
    chaos.settle()


@pytest.mark.parametrize("seed", range(40))
def test_every_partition_is_read_by_exactly_one_member(seed: int) -> None:
    run(seed)
