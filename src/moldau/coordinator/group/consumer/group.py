"""A consumer group (KIP-848). Its whole state is in the log. Counts are updated whenever a member changes, so that a
heartbeat that changes nothing need not look at other members.

    Empty --> Assigning --target computed--> Reconciling --every member has its target--> Stable
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.member import (
    NO_TARGET,
    ConsumerMember,
    MemberState,
    Partitions,
    PartitionsByTopicId,
    TargetAssignment,
)
from moldau.coordinator.group.group import PartitionCheck
from moldau.coordinator.group.subscriptions import SubscribedGroups, Subscriptions, add_to_count
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.consumer_protocol import PROTOCOL_TYPE

FIRST_EPOCH = 1
"""The first epoch of a group and of its target, which is empty then. It is not 0: member epoch 0 means a join."""
NO_EPOCH = -1
COMMIT_VERSION_MIN = 9
"""The first version of OffsetCommit that has a member epoch."""


class ConsumerGroup:
    type_name = "consumer"
    protocol_type = PROTOCOL_TYPE
    stays_when_empty = False

    def __init__(self, group_id: str, subscribed_groups: SubscribedGroups | None = None) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, TargetAssignment] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.owners: dict[tuple[Uuid, int], str] = {}
        """The member that has a partition, or still has to revoke it."""
        self.assignor_counts: dict[str, int] = {}
        """The number of members that ask for each assignor."""
        self.classic_member_count = 0
        self.classic_protocol_counts: dict[str, int] = {}
        """The number of classic members that support each protocol."""
        self.subscriptions = Subscriptions(group_id, subscribed_groups)
        self.must_resolve_topics = True
        """Topics of the group may have changed since it last resolved them. Soft state, not in the log."""
        self.unconfirmed: dict[str, PartitionsByTopicId] = {}
        """What those members last said that they own who own something else than they are assigned. Soft state."""
        self._stable_member_counts: dict[int, int] = {}
        """The number of members in state STABLE, by member epoch."""

    # --- the interface of every group ---------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if self._stable_member_counts.get(self.assignment_epoch) == len(self.members) else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.topics

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, request_version: int, in_transaction: bool = False
    ) -> PartitionCheck | None:
        """A member that does not know its new epoch yet may commit with an older one, for partitions that it already
        had in that epoch (KIP-1251)."""
        if epoch < 0 and not self.members:
            return None
        if in_transaction and epoch == NO_EPOCH and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not in_transaction and not member.is_classic and request_version < COMMIT_VERSION_MIN:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "members of consumer groups need OffsetCommit 9 or later")
        if epoch == member.member_epoch:
            return None
        stale = _stale_code(member)
        if epoch > member.member_epoch:
            raise KafkaError(stale, f"epoch {epoch} is newer than the member epoch {member.member_epoch}")

        def check(topic_id: Uuid, partition: int) -> None:
            since = member.assignment_epoch(topic_id, partition)
            if since is None:
                raise KafkaError(stale, f"partition {partition} is not assigned to member {member_id}")
            if epoch < since:
                raise KafkaError(
                    stale, f"partition {partition} is assigned to member {member_id} since epoch {since}, not {epoch}"
                )

        return check

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.member_epoch:
            raise KafkaError(_stale_code(member), f"member {member_id} is in epoch {member.member_epoch}, not {epoch}")

    def retention_counts_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return [
            *(record for member_id in self.members for record in records.member_tombstones(self.group_id, member_id)),
            *(records.pattern_tombstone(self.group_id, pattern) for pattern in self.subscriptions.resolved),
            *records.group_tombstones(self.group_id),
        ]

    # --- members ------------------------------------------------------------------------------------------------

    def member(self, member_id: str) -> ConsumerMember:
        """Return the member. Raise KafkaError if it is unknown."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no member {member_id}")
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> TargetAssignment:
        return self.targets.get(member_id, NO_TARGET)

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace it by its new state."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is None:
            self.subscriptions.add(member)
        elif not member.has_same_subscription(before):
            self.subscriptions.add(member)
            self.subscriptions.remove(before)
        if before is not None:
            self._uncount(before)
        self._count(member)

    def confirms(self, before: ConsumerMember, member: ConsumerMember, owned: PartitionsByTopicId | None) -> bool:
        """Return whether the member owns what it is assigned, as far as it has said; `owned` is what it says now.

        Until then each response has the assignment. The response that had it first may have been lost, and not every
        client asks again: librdkafka 2.16 repeats a heartbeat that timed out as it was."""
        if owned is None:
            owned = self.unconfirmed.get(member.member_id)
            if owned is None:
                if member.assigned == before.assigned:
                    return True
                owned = _by_topic(before.assigned)
        if owned == _by_topic(member.assigned):
            self.unconfirmed.pop(member.member_id, None)
            return True
        self.unconfirmed[member.member_id] = owned
        return False

    def remove(self, member_id: str) -> None:
        self.targets.pop(member_id, None)
        self.unconfirmed.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.subscriptions.remove(member)
            self._uncount(member)

    def _count(self, member: ConsumerMember) -> None:
        for partition in _flatten(member.assigned, member.pending_revocation):
            self.owners[partition] = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if member.server_assignor is not None:
            add_to_count(self.assignor_counts, member.server_assignor, 1)
        if member.state is MemberState.STABLE:
            add_to_count(self._stable_member_counts, member.member_epoch, 1)
        self._count_classic(member, 1)

    def _uncount(self, member: ConsumerMember) -> None:
        """Remove only what the member still owns. On replay of a compacted log, another member may already own it."""
        for partition in _flatten(member.assigned, member.pending_revocation):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if member.server_assignor is not None:
            add_to_count(self.assignor_counts, member.server_assignor, -1)
        if member.state is MemberState.STABLE:
            add_to_count(self._stable_member_counts, member.member_epoch, -1)
        self._count_classic(member, -1)

    def _count_classic(self, member: ConsumerMember, by: int) -> None:
        if member.classic_member_metadata is not None:
            self.classic_member_count += by
            for protocol in member.classic_member_metadata.supported_protocols:
                add_to_count(self.classic_protocol_counts, protocol.name, by)


def _stale_code(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _by_topic(partitions: Partitions) -> PartitionsByTopicId:
    return {topic_id: frozenset(epochs) for topic_id, epochs in partitions.items()}


def _flatten(*all_partitions: Partitions) -> Iterator[tuple[Uuid, int]]:
    for by_topic in all_partitions:
        for topic_id, partitions in by_topic.items():
            for partition in partitions:
                yield topic_id, partition
