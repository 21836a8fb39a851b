"""The clients, topics and administrators of a run: clients start, stop, stall and die, topics are created, grown and
deleted, groups are administered, all at random.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from machines.machine import CLIENT_PORT
from machines.network import SimulatedPeers
from machines.process import Process
from reading_client import REQUEST_TIMEOUT_MS, Held, ReadingClient

from groups.classic_assignors import COOPERATIVE, RANGE, ROUND_ROBIN
from groups.classic_client import ClassicClient
from groups.consumer_client import ConsumerClient
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.list_groups import ListGroupsRequest
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from groups.world import GroupsWorld

PARTITIONS_MAX = 8
RECREATE_AFTER_MS = 30_000
"""A topic's name is not used again before everything about the old topic is over."""
STATIC_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class SomeGroup:
    group_id: str
    kind: str
    """`classic`, `consumer`, or `mixed`: then each client uses one of the two protocols."""
    assignors: tuple[str, ...]
    """The assignors that classic members support."""


class Population:
    def __init__(self, world: GroupsWorld, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._deleted_ms: dict[str, int] = {}
        self._instances: dict[str, list[str]] = {}
        """The subscriptions of the static clients."""
        self._names = 0
        self._admin_peers = SimulatedPeers(world.network, Process("admin"), world.timers.after_ms)
        assignors = [(RANGE, ROUND_ROBIN), (RANGE,), (COOPERATIVE,)]
        kinds = ["classic", "classic", "consumer", "consumer", *(["mixed"] if world.has_mixed_groups else [])]
        self.groups = [
            SomeGroup(f"group-{number}", rng.choice(kinds), rng.choice(assignors))
            for number in range(world.size.groups)
        ]
        self.client_actions: dict[Callable[[], None], int] = {
            self._join: 14,
            self._leave: 6,
            self._stall: 9,
            self._die: 4,
            self._resubscribe: 5,
            self._twin: 2,
        }
        self.other_actions: dict[Callable[[], None], int] = {self._topic: 6, self._admin: 5}

    def settle(self) -> None:
        """Create the first clients."""
        for number in range(self._world.size.topics):
            self._create(f"topic-{number}")
        for group in self.groups:
            for _ in range(self._rng.randint(1, self._world.size.members)):
                self._spawn(group, self._some_instance())

    def is_mixed(self, group_id: str) -> bool:
        return any(group.kind == "mixed" for group in self.groups if group.group_id == group_id)

    # --- clients --------------------------------------------------------------------------------------------------

    def _spawn(self, group: SomeGroup, instance_id: str | None = None) -> None:
        world, rng = self._world, self._rng
        self._names += 1
        world.members += 1
        kind = rng.choice(["classic", "consumer"]) if group.kind == "mixed" else group.kind
        name = f"{'k' if kind == 'classic' else 'c'}{self._names}"
        topics = self._some_topics()
        if instance_id is not None:
            # A returning static member gets its old assignment, whatever it subscribes to: it keeps its subscription.
            topics = self._instances.setdefault(instance_id, topics)
        timeout_ms = rng.choice([8_000, 15_000, 25_000])
        if kind == "classic":
            assignors = list(group.assignors)
            rng.shuffle(assignors)
            ClassicClient(world, name, group.group_id, topics, instance_id, assignors, timeout_ms)
        else:
            pattern = world.pattern() if rng.random() < 0.3 else ""
            named = [] if pattern and rng.random() < 0.5 else topics
            assignor = rng.choice([None, None, "uniform", "range"])
            ConsumerClient(world, name, group.group_id, named, instance_id, pattern, assignor, timeout_ms)

    def _some_topics(self) -> list[str]:
        names = [f"topic-{number}" for number in range(self._world.size.topics)]
        return self._rng.sample(names, self._rng.randint(1, min(3, len(names))))

    def topics_of(self, client: ReadingClient) -> list[str]:
        """Return all topics that a client reads, also by its pattern."""
        pattern = getattr(client, "pattern", "")
        matched = [name for name in self._world.image.topics if pattern and re.fullmatch(pattern, name)]
        return sorted({*client.topics, *matched})

    def _some_client(self) -> ReadingClient | None:
        clients = list(self._world.clients.values())
        return self._rng.choice(clients) if clients else None

    def _join(self) -> None:
        group = self._rng.choice(self.groups)
        count = sum(client.group_id == group.group_id for client in self._world.clients.values())
        if count < self._world.size.members:
            self._world.faults.count("a client joins", group.group_id)
            self._spawn(group, self._some_instance())

    def _some_instance(self) -> str | None:
        return f"instance-{self._names}" if self._rng.random() < STATIC_SHARE else None

    def _group_of(self, client: ReadingClient) -> SomeGroup:
        return next(group for group in self.groups if group.group_id == client.group_id)

    def _leave(self) -> None:
        client = self._some_client()
        if client is None:
            return
        self._world.faults.count("a client leaves", client.name)
        group, instance_id = self._group_of(client), client.instance_id
        if instance_id is not None and self._rng.random() < 0.7:
            if isinstance(client, ConsumerClient):
                client.leave(for_a_while=True)
            else:
                client.die()  # a static member of the classic protocol does not leave the group when it stops
            self._world.timers.after_ms(self._rng.randint(100, 20_000), lambda: self._return(group, instance_id))
        else:
            client.leave()

    def _return(self, group: SomeGroup, instance_id: str) -> None:
        if not self._world.faults.is_over:
            self._world.faults.count("a static client returns", instance_id)
            self._spawn(group, instance_id)

    def _stall(self) -> None:
        client = self._some_client()
        if client is not None:
            duration_ms = self._rng.choice([2_000, 8_000, 15_000, 20_000, 30_000])
            self._world.faults.count("a client stalls", f"{client.name} {duration_ms}")
            client.stall(duration_ms)

    def _die(self) -> None:
        client = self._some_client()
        if client is not None:
            self._world.faults.count("a client dies", client.name)
            client.die()

    def twins_of(self, client: ReadingClient) -> list[ReadingClient]:
        """Return the other clients with the same instance id."""
        if client.instance_id is None:
            return []
        others = self._world.clients.values()
        return [other for other in others if other is not client and other.instance_id == client.instance_id]

    def remove_some_members(self) -> None:
        """In each group, some members leave or die at once; of two members with one instance id, one is kept, so that
        they do not fence each other for ever."""
        dying = {group.group_id for group in self.groups if self._rng.random() < 0.5}
        for client in list(self._world.clients.values()):
            if self.twins_of(client):
                client.die()
            elif self._rng.random() < 0.25:
                is_dying = client.group_id in dying
                self._world.faults.count("a client dies" if is_dying else "a client leaves", client.name)
                (client.die if is_dying else client.leave)()

    def _resubscribe(self) -> None:
        client = self._some_client()
        # A static member that came back meanwhile would get the assignment of the old subscription.
        if client is not None and client.instance_id is None:
            self._world.faults.count("a client changes its subscription", client.name)
            topics = self._some_topics()
            client.act(lambda: client.subscribe(topics))

    def _twin(self) -> None:
        """Start a second client with the same instance id, while the first still runs."""
        client = self._some_client()
        if client is not None and client.instance_id is not None:
            self._world.faults.count("a second client uses the same instance id", client.name)
            self._spawn(self._group_of(client), client.instance_id)

    # --- topics ---------------------------------------------------------------------------------------------------

    def _topic(self) -> None:
        name = f"topic-{self._rng.randrange(self._world.size.topics)}"
        topic = self._world.image.topics.get(name)
        if topic is None:
            deleted_ms = self._deleted_ms.get(name, -RECREATE_AFTER_MS)
            is_held = any(self._world.topic_names[held.topic_id] == name for _, held in self._world.ledger.holders)
            if not is_held and self._world.elapsed_ms - deleted_ms >= RECREATE_AFTER_MS:
                self._world.faults.count("a topic is created", name)
                self._create(name)
        elif len(topic.partitions) < PARTITIONS_MAX and self._rng.random() < 0.6:
            self._world.faults.count("a topic grows", name)
            grown = CreatePartitionsTopic(name, len(topic.partitions) + self._rng.randint(1, 2), None)
            self._ask(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest([grown]))
        else:
            self._world.faults.count("a topic is deleted", name)
            self.delete(name)

    def delete(self, name: str) -> None:
        self._deleted_ms[name] = self._world.elapsed_ms
        self._ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState(name)]))

    def _create(self, name: str) -> None:
        topic = CreatableTopic(name, self._rng.randint(1, 4), 1)
        self._ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic]))

    def _ask(self, api: ApiKey, request: Message, version: int | None = None) -> None:
        peer = self._admin_peers.to(self._world.machine.host, CLIENT_PORT, "")
        peer.ask(api, request, REQUEST_TIMEOUT_MS, version)

    # --- administration of groups ---------------------------------------------------------------------------------

    def _admin(self) -> None:
        group_id = self._rng.choice(self.groups).group_id
        what = self._rng.choice([self._delete_group, self._delete_offsets, self._reset_offsets, self._describe_groups])
        what(group_id)

    def _describe_groups(self, group_id: str) -> None:
        self._world.faults.count("groups are listed and described", group_id)
        self._ask(ApiKey.LIST_GROUPS, ListGroupsRequest(), self._rng.randint(0, 5))
        self._ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest([group_id]), self._rng.randint(0, 6))
        self._ask(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest([group_id]), self._rng.randint(0, 1))

    def _delete_group(self, group_id: str) -> None:
        self._world.faults.count("a group deletion is requested", group_id)
        self._ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest([group_id]), self._rng.randint(0, 2))

    def _some_partition(self) -> tuple[str, Held] | None:
        topics = [topic for name, topic in sorted(self._world.image.topics.items()) if not name.startswith("__")]
        if not topics:
            return None
        topic = self._rng.choice(topics)
        return topic.name, Held(topic.id, self._rng.randrange(len(topic.partitions)))

    def _delete_offsets(self, group_id: str) -> None:
        found = self._some_partition()
        if found is not None:
            self._world.faults.count("an offset deletion is requested", group_id)
            partitions = [OffsetDeleteRequestPartition(found[1].partition)]
            topics = [OffsetDeleteRequestTopic(found[0], partitions)]
            self._ask(ApiKey.OFFSET_DELETE, OffsetDeleteRequest(group_id, topics))

    def _reset_offsets(self, group_id: str) -> None:
        """Reset an offset without being a member; only an empty group allows it."""
        found = self._some_partition()
        if found is not None:
            self._world.faults.count("an offset reset is requested", group_id)
            partitions = [OffsetCommitRequestPartition(found[1].partition, self._rng.randint(0, 20))]
            topics = [OffsetCommitRequestTopic(found[1].topic_id, "", partitions)]
            self._ask(ApiKey.OFFSET_COMMIT, OffsetCommitRequest(group_id, topics=topics), 10)
