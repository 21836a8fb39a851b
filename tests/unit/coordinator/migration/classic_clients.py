"""Clients that follow the classic group protocol: eager ones revoke everything before they join, cooperative ones
continue to read; the leader makes the assignment.

What a client owns is stored by topic id, as in the coordinator's consumer members, so that both can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from harness.in_memory_group_shard import InMemoryGroupShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.promise import Promise
from moldau.coordinator.machine import Client
from moldau.wire.consumer_protocol import read, write
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription, TopicPartitions
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TopicIdPartitions = frozenset[tuple[Uuid, int]]
NO_PARTITIONS: TopicIdPartitions = frozenset()


@dataclass
class ClassicClient:
    shard: InMemoryGroupShard
    name: str
    topics: list[str]
    is_cooperative: bool
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: TopicIdPartitions = NO_PARTITIONS
    must_join: bool = True
    must_sync: bool = False
    is_dead: bool = False
    """Another member has its instance id."""
    assignments: dict[str, bytes] = field(default_factory=dict)
    """The assignments that it sends as the leader."""
    waiting: Promise[Any] | None = None

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.is_cooperative else "range"

    def send_request(self, *, is_response_lost: bool = False) -> int:
        """Send a request, unless one is in flight. Return whether there was one to send. The response may get lost."""
        if self.is_dead or (self.waiting is not None and not self.waiting.done):
            return 0
        if self.must_join:
            if not self.is_cooperative:
                self.owned = NO_PARTITIONS
            self._send(
                lambda groups, client: groups.join(self._join_request(), client), self._on_joined, is_response_lost
            )
            return 1
        if self.must_sync:
            self._send(
                lambda groups, client: groups.sync(self._sync_request(), client), self._on_synced, is_response_lost
            )
            return 1
        request = HeartbeatRequest("g", self.generation, self.member_id, self.instance_id)
        self._send(lambda groups, client: groups.heartbeat(request, client), lambda _: None, is_response_lost)
        return int(self.must_join)

    def react(self) -> bool:
        """Do nothing: a classic client takes its assignment and revokes the rest as soon as it is synced."""
        return False

    def leave(self) -> None:
        request = LeaveGroupRequest("g", [MemberIdentity(self.member_id, self.instance_id)])
        self.shard.submit(lambda groups: groups.leave(request, Client(self.name, "/here", 5)))
        self.is_dead, self.owned = True, NO_PARTITIONS

    # --- requests -----------------------------------------------------------------------------------------------

    def _send(self, decide: Any, on_success: Any, is_response_lost: bool) -> None:
        client = Client(self.name, "/here", 9)
        promise = self.waiting = self.shard.submit(lambda groups: decide(groups, client))

        def on_response(response: Any) -> None:
            if is_response_lost or self.is_dead:
                return
            code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                on_success(response)
            else:
                self._on_error(code, response)

        promise.then(on_response)

    def _on_error(self, code: ErrorCode, response: Any) -> None:
        """Give up everything after a fencing error; after REBALANCE_IN_PROGRESS, continue to read until the join."""
        self.must_join, self.must_sync = True, False
        match code:
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.NOT_COORDINATOR:
                pass
            case ErrorCode.ILLEGAL_GENERATION:
                self.owned = NO_PARTITIONS
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.owned, self.member_id = NO_PARTITIONS, ""
            case ErrorCode.FENCED_INSTANCE_ID:
                self.owned, self.is_dead = NO_PARTITIONS, True
            case _:
                raise AssertionError(f"{self.name} got {code.name}")

    def _join_request(self) -> JoinGroupRequest:
        named = [TopicPartitions(name, found) for name, found in self._by_name(self.owned).items()]
        metadata = write(Subscription(self.topics, None, named), 1)
        protocols = [JoinGroupRequestProtocol(self.protocol, metadata)]
        return JoinGroupRequest("g", 10_000, 30_000, self.member_id, self.instance_id, "consumer", protocols)

    def _on_joined(self, response: JoinGroupResponse) -> None:
        self.member_id, self.generation = response.member_id, response.generation_id
        self.must_join, self.must_sync = False, True
        self.assignments = {}
        if response.leader == self.member_id and not response.skip_assignment:
            subscriptions = {each.member_id: read(Subscription, each.metadata)[0] for each in response.members}
            self.assignments = {
                member_id: write(Assignment([TopicPartitions(*each) for each in found.items()]), 1)
                for member_id, found in self._assign(subscriptions).items()
            }

    def _assign(self, subscriptions: dict[str, Subscription]) -> dict[str, dict[str, list[int]]]:
        """Assign round-robin to subscribers. A cooperative leader leaves out what another member must still revoke."""
        assignments: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in subscriptions}
        owners: dict[tuple[str, int], set[str]] = {}
        for member_id, subscription in subscriptions.items():
            for each in subscription.owned_partitions:
                for index in each.partitions:
                    owners.setdefault((each.topic, index), set()).add(member_id)
        for name, topic in self.shard.current.image.topics.items():
            readers = sorted(
                member_id for member_id, subscription in subscriptions.items() if name in subscription.topics
            )
            for index in range(len(topic.partitions) if readers else 0):
                member_id = readers[index % len(readers)]
                if owners.get((name, index), set()) <= {member_id}:
                    assignments[member_id].setdefault(name, []).append(index)
        return assignments

    def _sync_request(self) -> SyncGroupRequest:
        assignments = [SyncGroupRequestAssignment(*each) for each in self.assignments.items()]
        return SyncGroupRequest(
            "g", self.generation, self.member_id, self.instance_id, "consumer", self.protocol, assignments
        )

    def _on_synced(self, response: Any) -> None:
        self.must_sync = False
        named = read(Assignment, response.assignment)[0].assigned_partitions if response.assignment else ()
        topics = self.shard.current.image.topics
        assigned = _flatten((topics[each.topic].id, each.partitions) for each in named if each.topic in topics)
        self.must_join = self.is_cooperative and bool(self.owned - assigned)
        self.owned = assigned

    def _by_name(self, partitions: TopicIdPartitions) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic_id, index in sorted(partitions):
            name = self.shard.current.image.topic_names.get(topic_id)
            if name is not None:
                found.setdefault(name, []).append(index)
        return found


def _flatten(topics: Iterable[tuple[Uuid, Iterable[int]]]) -> TopicIdPartitions:
    return frozenset((topic_id, index) for topic_id, found in topics for index in found)
