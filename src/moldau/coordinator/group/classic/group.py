"""A classic group: its members, its generation, and which requests wait. `joining` and `rebalance` have the rules.

    Empty --join--> PreparingRebalance --all joined, or timeout-----> CompletingRebalance --leader's sync--> Stable
      ^                 |      ^                                             |                                 |
      +--nobody joined--+      +------------a member joins again, leaves or times out------------------------+

The log has a group as it last became Stable or Empty; the states in between are only in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.promise import Promise
from moldau.coordinator.group.group import PartitionCheck
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from moldau.wire.log_records.offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from moldau.wire.messages.join_group import JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

NO_GENERATION = -1


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


VALID_PREVIOUS_STATES = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
    State.STABLE: {State.COMPLETING_REBALANCE},
}
"""The states from which each state can be reached."""


class Protocol(NamedTuple):
    """An assignor that a member supports, and the metadata (subscription) that the member sends for it."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    joining: Promise[JoinGroupResponse] | None = None
    """The promise of its JoinGroup response, while the request waits for other members."""
    syncing: Promise[SyncGroupResponse] | None = None
    """The promise of its SyncGroup response, while the request waits for the leader."""
    is_new: bool = False
    """The member has no generation yet, so its session may time out although its JoinGroup waits."""

    def metadata_of(self, protocol: str) -> bytes:
        return next((supported.metadata for supported in self.protocols if supported.name == protocol), b"")

    def matches_logged(self, logged: ClassicMember) -> bool:
        """Return whether the member in the log, which has only one protocol, has no other values than this one."""
        return set(logged.protocols) <= set(self.protocols) and (
            (self.rebalance_timeout_ms, self.session_timeout_ms)
            == (logged.rebalance_timeout_ms, logged.session_timeout_ms)
        )


@dataclass(slots=True, eq=False)
class ClassicGroup:
    group_id: str
    state: State = State.EMPTY
    previous_state: State = State.EMPTY
    state_timestamp_ms: int | None = None
    generation: int = 0
    protocol_type_or_none: str | None = None
    """None for a group that never had members, only committed offsets."""
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_members: set[str] = field(default_factory=set)
    """Member ids that were sent to clients, which have not joined with them yet (KIP-394)."""
    pending_sync: set[str] = field(default_factory=set)
    new_member_added: bool = False
    """A member joined during the current delay of the first rebalance."""
    subscribed_topics: frozenset[str] | None = None
    """None if the subscriptions are unknown, because the metadata could not be decoded or the group is no consumer
    group."""
    joining_count: int = 0
    protocol_counts: dict[str, int] = field(default_factory=dict)

    # --- queries ------------------------------------------------------------------------------------------------

    @property
    def type_name(self) -> str:
        return "classic"

    @property
    def stays_when_empty(self) -> bool:
        return False

    @property
    def protocol_type(self) -> str:
        return self.protocol_type_or_none or ""

    @property
    def state_name(self) -> str:
        return self.state

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type_or_none == PROTOCOL_TYPE

    @property
    def have_all_joined(self) -> bool:
        return len(self.members) == self.joining_count and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.is_of_consumers and not self.is_empty
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Sequence[str]) -> bool:
        """Whether a member with these protocols may join: all members must support at least one of them."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        counts = self.protocol_counts
        return protocol_type == self.protocol_type_or_none and any(
            counts.get(name, 0) == len(self.members) for name in protocols
        )

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member. Raise KafkaError if it is unknown, or if another has taken its instance id."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, request_version: int, in_transaction: bool = False
    ) -> PartitionCheck | None:
        if epoch < 0 and self.is_empty:
            return None
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not in_transaction:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is State.COMPLETING_REBALANCE and not in_transaction:
            # The member has a new generation, but does not know yet whether it still owns the partition.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Allow any client."""

    def retention_counts_from_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type_or_none is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        if self.is_of_consumers and self.subscribed_topics is not None and self.state is State.STABLE:
            return commit_timestamp_ms
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(self.group_id), None)]

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all support; the leader's order breaks ties."""
        common = [name for name, count in self.protocol_counts.items() if count == len(self.members)]
        votes = dict.fromkeys(common, 0)
        for member in self.members.values():
            votes[next(protocol.name for protocol in member.protocols if protocol.name in votes)] += 1
        leader = self.members[self.leader or ""]
        order = [protocol.name for protocol in leader.protocols if protocol.name in votes]
        return max(order, key=lambda name: votes[name])

    # --- changes ------------------------------------------------------------------------------------------------

    def become(self, state: State, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], (
            f"group {self.group_id}: no transition from {self.state} to {state}"
        )
        self.previous_state, self.state, self.state_timestamp_ms = self.state, state, now_ms

    def add(self, member: ClassicMember) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.joining_count += member.joining is not None
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            self.joining_count -= member.joining is not None
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)

    def update(
        self, member: ClassicMember, protocols: tuple[Protocol, ...], rebalance_ms: int, session_ms: int
    ) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def rename(self, old_member_id: str, new_member_id: str) -> ClassicMember:
        """Give a static member that came back its new member id; it keeps everything else."""
        member = self.members.pop(old_member_id)
        assert member.instance_id is not None
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_members[member.instance_id] = new_member_id
        self.pending_sync.discard(old_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that joined. Return False if no member has joined."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_of_consumers:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            subscriptions = [member.metadata_of(self.protocol_name) for member in self.members.values()]
            return frozenset(subscribed_topics(subscriptions))
        except MalformedData:
            return None  # clients may use the type `consumer` with metadata of their own format

    def record(self, assignments: dict[str, bytes]) -> CoordinatorRecord:
        """Return the record of the group with these assignments."""
        protocol = self.protocol_name or ""
        members = [
            MemberMetadata(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_of(protocol),
                assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        timestamp = -1 if self.state_timestamp_ms is None else self.state_timestamp_ms
        value = GroupMetadataValue(
            self.protocol_type, self.generation, self.protocol_name, self.leader, timestamp, members
        )
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    def load(self, value: GroupMetadataValue) -> None:
        """Apply a record of the group. Members that it does not change keep their soft state."""
        old_members = {member.member_id: member for member in self.members.values()}
        for member_id in old_members.keys() - {member.member_id for member in value.members}:
            self.remove(member_id)
        for metadata in value.members:
            logged = _member(metadata, value.protocol or "")
            member = old_members.get(metadata.member_id)
            if member is None:
                self.add(logged)
            elif not member.matches_logged(logged):
                self.update(member, logged.protocols, logged.rebalance_timeout_ms, logged.session_timeout_ms)
            self.members[metadata.member_id].assignment = metadata.assignment
        self.previous_state, self.state = self.state, State.STABLE if value.members else State.EMPTY
        self.state_timestamp_ms = None if value.current_state_timestamp < 0 else value.current_state_timestamp
        self.generation = value.generation
        self.protocol_type_or_none = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader = value.leader
        self.subscribed_topics = self.find_subscribed_topics()

    def _count_protocols(self, member: ClassicMember, change: int) -> None:
        for protocol in member.protocols:
            count = self.protocol_counts.get(protocol.name, 0) + change
            if count:
                self.protocol_counts[protocol.name] = count
            else:
                del self.protocol_counts[protocol.name]


def _member(metadata: MemberMetadata, protocol: str) -> ClassicMember:
    # Version 0 of the record has no rebalance timeout; the session timeout is used instead.
    rebalance_timeout_ms = metadata.session_timeout if metadata.rebalance_timeout < 0 else metadata.rebalance_timeout
    return ClassicMember(
        metadata.member_id,
        metadata.group_instance_id,
        metadata.client_id,
        metadata.client_host,
        rebalance_timeout_ms,
        metadata.session_timeout,
        (Protocol(protocol, metadata.subscription),),
    )
