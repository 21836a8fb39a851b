"""A consumer group (KIP-848): all of it is in the log, and comes from there. What is counted here is counted as members
come and go, so that a heartbeat with nothing new looks at nobody else.

    Empty --> Assigning --a target was made--> Reconciling --every member has what it should--> Stable
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
    Target,
)
from moldau.coordinator.group.consumer.subscriptions import Interest, Subscriptions, count
from moldau.coordinator.group.group import PartitionCheck
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.consumer_protocol import PROTOCOL_TYPE

FIRST_EPOCH = 1
"""Of a group, and of its target, which is then empty: a member's epoch must not be 0, which means that it joins."""
NO_EPOCH = -1
COMMIT_VERSION_MIN = 9
"""The version of OffsetCommit since which a member's epoch is known for what it is."""


class ConsumerGroup:
    type_name = "consumer"
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str, interest: Interest | None = None) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Target] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.owners: dict[tuple[Uuid, int], str] = {}
        """Who has a partition, or has yet to give it up."""
        self.assignors: dict[str, int] = {}
        """Members by the assignor that they ask for."""
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}
        """Classic members by the protocols that they know."""
        self.subscriptions = Subscriptions(group_id, interest)
        self.must_look = True
        """Soft: topics that concern the group may have changed since it last looked at them."""
        self._stable: dict[int, int] = {}
        """Members in state STABLE, by epoch."""

    # --- what every group can be asked --------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if self._stable.get(self.assignment_epoch) == len(self.members) else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.topics

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, in_transaction: bool = False
    ) -> PartitionCheck | None:
        """A member that has not heard of its new epoch yet may commit for the partitions that it has had since before
        the epoch it speaks of (KIP-1251)."""
        if epoch < 0 and not self.members:
            return None
        if in_transaction and epoch == NO_EPOCH and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not in_transaction and not member.is_classic and version < COMMIT_VERSION_MIN:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "members of consumer groups commit with version 9 or later")
        if epoch == member.member_epoch:
            return None
        stale = _stale_code(member)
        if epoch > member.member_epoch:
            raise KafkaError(stale, f"epoch {epoch} is newer than the member's, {member.member_epoch}")

        def check(topic_id: Uuid, partition: int) -> None:
            since = member.assignment_epoch(topic_id, partition)
            if since is None:
                raise KafkaError(stale, f"partition {partition} is not the member's")
            if epoch < since:
                raise KafkaError(stale, f"partition {partition} is the member's since epoch {since}, not {epoch}")

        return check

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.member_epoch:
            raise KafkaError(_stale_code(member), f"the member is in epoch {member.member_epoch}, not {epoch}")

    def offsets_expire_after_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        gone = [record for member_id in self.members for record in records.member_gone(self.group_id, member_id)]
        gone += (records.pattern_gone(self.group_id, pattern) for pattern in self.subscriptions.resolved)
        return [*gone, *records.group_gone(self.group_id)]

    # --- its members --------------------------------------------------------------------------------------------

    def member(self, member_id: str) -> ConsumerMember:
        """KafkaError if there is none of that id."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {self.group_id}")
        return found

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Target:
        return self.targets.get(member_id, NO_TARGET)

    def put(self, member: ConsumerMember) -> None:
        """A member is new, or is now like this."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is None:
            self.subscriptions.add(member)
        elif not member.reads_as(before):
            self.subscriptions.add(member)
            self.subscriptions.remove(before)
        if before is not None:
            self._uncount(before)
        self._count(member)

    def remove(self, member_id: str) -> None:
        self.targets.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.subscriptions.remove(member)
            self._uncount(member)

    def _count(self, member: ConsumerMember) -> None:
        for partition in _each(member.assigned, member.pending_revocation):
            self.owners[partition] = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if member.server_assignor is not None:
            count(self.assignors, member.server_assignor, 1)
        if member.state is MemberState.STABLE:
            count(self._stable, member.member_epoch, 1)
        self._count_classic(member, 1)

    def _uncount(self, member: ConsumerMember) -> None:
        """Only what is still its own is taken from it: another may have got it since, as when a log is replayed whose
        older records are gone."""
        for partition in _each(member.assigned, member.pending_revocation):
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if member.server_assignor is not None:
            count(self.assignors, member.server_assignor, -1)
        if member.state is MemberState.STABLE:
            count(self._stable, member.member_epoch, -1)
        self._count_classic(member, -1)

    def _count_classic(self, member: ConsumerMember, by: int) -> None:
        if member.classic_member_metadata is not None:
            self.classic_members += by
            for protocol in member.classic_member_metadata.supported_protocols:
                count(self.classic_protocols, protocol.name, by)


def _stale_code(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _each(*all_partitions: Partitions) -> Iterator[tuple[Uuid, int]]:
    for by_topic in all_partitions:
        for topic_id, partitions in by_topic.items():
            for partition in partitions:
                yield topic_id, partition
