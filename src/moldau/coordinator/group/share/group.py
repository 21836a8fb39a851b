"""A share group (KIP-932). Its whole state is in the log.

Empty --a member joins--> Stable --the last one leaves--> Empty
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.group import PartitionCheck
from moldau.coordinator.group.share import records
from moldau.coordinator.group.share.member import NO_PARTITIONS, PartitionsByTopicId, ShareMember
from moldau.coordinator.group.share.states import NO_STATES
from moldau.coordinator.group.subscriptions import SubscribedGroups, Subscriptions
from moldau.coordinator.machine import CoordinatorRecord

FIRST_EPOCH: Final = 1
"""The first epoch of a group and of its target, which is empty then. It is not 0: member epoch 0 means a join."""
NO_EPOCH: Final = -1


class ShareGroup:
    type_name = "share"
    protocol_type = "share"
    stays_when_empty = True

    def __init__(self, group_id: str, subscribed_groups: SubscribedGroups | None = None) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, PartitionsByTopicId] = {}
        self.states = NO_STATES
        self.subscriptions = Subscriptions(group_id, subscribed_groups)
        self.must_resolve_topics = True
        """Topics of the group may have changed since it last resolved them. Soft state, not in the log."""
        self.is_settled = False
        """Whether a heartbeat has found nothing to assign and nothing to initialize, and nothing has changed since.
        Soft state."""

    # --- the interface of every group ---------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.topics

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, request_version: int, in_transaction: bool = False
    ) -> PartitionCheck | None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Allow it, as Kafka does: the group has no committed offsets."""

    def retention_counts_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return [
            *(record for member_id in self.members for record in records.member_tombstones(self.group_id, member_id)),
            *records.group_tombstones(self.group_id),
        ]

    # --- members ------------------------------------------------------------------------------------------------

    def member(self, member_id: str) -> ShareMember:
        """Return the member. Raise KafkaError if it is unknown."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def target_of(self, member_id: str) -> PartitionsByTopicId:
        return self.targets.get(member_id, NO_PARTITIONS)

    def put(self, member: ShareMember) -> None:
        """Add a member, or replace it by its new state."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self.subscriptions.add(member)
        if before is not None:
            self.subscriptions.remove(before)

    def remove(self, member_id: str) -> None:
        self.targets.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.subscriptions.remove(member)
