"""A classic group: its members, its generation, and who waits for what. Rules of who may do what when are beside it.

    Empty --join--> PreparingRebalance --all joined, or time is up--> CompletingRebalance --leader's sync--> Stable
      ^                 |      ^                                             |                                 |
      +--nobody joined--+      +------------a member joins anew, leaves, or is lost--------------------------+

The log holds a group as it was when it last became Stable or Empty; all in between is soft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.promise import Promise
from moldau.coordinator.group.group import PartitionCheck
from moldau.coordinator.group.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from moldau.wire.messages.join_group import JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

NO_GENERATION = -1


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


FROM = {
    State.EMPTY: {State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE},
    State.STABLE: {State.COMPLETING_REBALANCE},
}
"""From which states a state can be reached."""


class Protocol(NamedTuple):
    """A way to share out partitions that a member knows, and what it wants to tell the others if it is taken."""

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
    """Its JoinGroup, while that waits for the others."""
    syncing: Promise[SyncGroupResponse] | None = None
    is_new: bool = False
    """It has not been told a generation yet: it may be expelled although it waits."""

    def metadata_of(self, protocol: str) -> bytes:
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    def is_told_by(self, other: ClassicMember) -> bool:
        """Whether the log's word on this member, which tells of one protocol only, holds no news."""
        return set(other.protocols) <= set(self.protocols) and (
            (self.rebalance_timeout_ms, self.session_timeout_ms)
            == (other.rebalance_timeout_ms, other.session_timeout_ms)
        )


@dataclass(slots=True, eq=False)
class ClassicGroup:
    group_id: str
    state: State = State.EMPTY
    previous_state: State = State.EMPTY
    state_timestamp_ms: int | None = None
    generation: int = 0
    protocol_type_said: str | None = None
    """None for a group that only ever committed offsets."""
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_members: set[str] = field(default_factory=set)
    """Member ids that were given out and have not come back yet (KIP-394)."""
    pending_sync: set[str] = field(default_factory=set)
    new_member_added: bool = False
    """While the first rebalance waits: somebody came since it last looked."""
    subscribed_topics: frozenset[str] | None = None
    """None where nobody can tell."""
    joining_count: int = 0
    protocol_counts: dict[str, int] = field(default_factory=dict)

    # --- what it can be asked -----------------------------------------------------------------------------------

    @property
    def type_name(self) -> str:
        return "classic"

    @property
    def protocol_type(self) -> str:
        return self.protocol_type_said or ""

    @property
    def state_name(self) -> str:
        return self.state

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type_said == PROTOCOL_TYPE

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
        """Whether a member that knows these could be one of us: at least one must be known to all."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        counts = self.protocol_counts
        return protocol_type == self.protocol_type_said and any(
            counts.get(name, 0) == len(self.members) for name in protocols
        )

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member of that name; KafkaError if it is none, or another took its place."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, in_transaction: bool = False
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
            # The member was told a new generation and does not know yet whether the partition is still its own.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Anybody may ask."""

    def offsets_expire_after_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type_said is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        if self.is_of_consumers and self.subscribed_topics is not None and self.state is State.STABLE:
            return commit_timestamp_ms
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(self.group_id), None)]

    def select_protocol(self) -> str:
        """Among those that all know, the one most members like best; the leader's order decides between equals."""
        common = [name for name, count in self.protocol_counts.items() if count == len(self.members)]
        votes = dict.fromkeys(common, 0)
        for member in self.members.values():
            votes[next(known.name for known in member.protocols if known.name in votes)] += 1
        leader = self.members[self.leader or ""]
        order = [known.name for known in leader.protocols if known.name in votes]
        return max(order, key=lambda name: votes[name])

    # --- what changes it ----------------------------------------------------------------------------------------

    def become(self, state: State, now_ms: int) -> None:
        assert self.state in FROM[state], f"{self.group_id}: {self.state} does not become {state}"
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
        """Also for one that is pending only."""
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
        """A static member that comes back is another member with the old one's belongings."""
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
        """The leader must be one who joined; False if nobody has."""
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
            return frozenset().union(*(subscribed_topics(subscription) for subscription in subscriptions))
        except MalformedData:
            return None  # members of type `consumer` that speak a language of their own

    def record(self, assignments: dict[str, bytes]) -> CoordinatorRecord:
        """The group as the log shall remember it."""
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
        """The group as the log remembers it. Members that it tells no news of keep what is soft about them."""
        known = {member.member_id: member for member in self.members.values()}
        for member_id in known.keys() - {member.member_id for member in value.members}:
            self.remove(member_id)
        for said in value.members:
            told = _member(said, value.protocol or "")
            member = known.get(said.member_id)
            if member is None:
                self.add(told)
            elif not member.is_told_by(told):
                self.update(member, told.protocols, told.rebalance_timeout_ms, told.session_timeout_ms)
            self.members[said.member_id].assignment = said.assignment
        self.previous_state, self.state = self.state, State.STABLE if value.members else State.EMPTY
        self.state_timestamp_ms = None if value.current_state_timestamp < 0 else value.current_state_timestamp
        self.generation = value.generation
        self.protocol_type_said = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader = value.leader
        self.subscribed_topics = self.find_subscribed_topics()

    def _count_protocols(self, member: ClassicMember, by: int) -> None:
        for protocol in member.protocols:
            count = self.protocol_counts.get(protocol.name, 0) + by
            if count:
                self.protocol_counts[protocol.name] = count
            else:
                del self.protocol_counts[protocol.name]


def _member(said: MemberMetadata, protocol: str) -> ClassicMember:
    # Version 0 of the record knew no rebalance timeout; the session's stood for it.
    rebalance_timeout_ms = said.session_timeout if said.rebalance_timeout < 0 else said.rebalance_timeout
    return ClassicMember(
        said.member_id,
        said.group_instance_id,
        said.client_id,
        said.client_host,
        rebalance_timeout_ms,
        said.session_timeout,
        (Protocol(protocol, said.subscription),),
    )
