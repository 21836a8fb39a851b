"""A member of a consumer group: its metadata, its assignment and its state. Immutable: a change makes a new object.

STABLE --the target takes partitions away--> UNREVOKED --the client revoked them--> STABLE or UNRELEASED
STABLE --another member has a partition of the target--> UNRELEASED --that member revoked it--> STABLE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from moldau.base.ids import Uuid
from moldau.wire.log_records.offsets import ClassicMemberMetadata

Partitions = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which the member got it (KIP-1251). A topic without any is left out."""

PartitionsByTopicId = Mapping[Uuid, frozenset[int]]
TargetAssignment = PartitionsByTopicId
"""What a member shall have, once other members have revoked it."""

NO_PARTITIONS: Final[Partitions] = {}
NO_TARGET: Final[TargetAssignment] = {}

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member left and may come back before its session times out."""


class MemberState(IntEnum):
    """The states with their numbers in the log."""

    STABLE = 0
    UNREVOKED = 1
    """It must revoke partitions before it can move to the next epoch."""
    UNRELEASED = 2
    """It is in the newest epoch and waits for partitions that other members still have to revoke."""
    UNKNOWN = 127
    """Written by a newer version of the software."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    pattern: str = ""
    """A regular expression over topic names; empty for none."""
    server_assignor: str | None = None
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    pending_revocation: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """The member owns these until it reports that it revoked them."""
    classic_member_metadata: ClassicMemberMetadata | None = None
    """Set for a member that uses the classic protocol."""

    @property
    def is_classic(self) -> bool:
        return self.classic_member_metadata is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.member_epoch == epoch and self.state is MemberState.STABLE

    def has_same_subscription(self, other: ConsumerMember) -> bool:
        """Whether both members subscribe to the same topics and pattern."""
        return self.topic_names == other.topic_names and self.pattern == other.pattern

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Return the epoch in which the member got the partition; None if it does not have it."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def with_assignment(
        self, epoch: int, state: MemberState, assigned: Partitions, pending: Partitions
    ) -> ConsumerMember:
        """Return the member after one step. It keeps its previous epoch: the client may not know the new one yet."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )

    def temporarily_left(self) -> ConsumerMember:
        """Return this static member as one that left and may come back, with a new member id and new epochs."""
        assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in self.assigned.items()}
        return replace(self, member_epoch=STATIC_LEAVE_EPOCH, assigned=assigned, pending_revocation=NO_PARTITIONS)

    def rejoined_as(self, member_id: str) -> ConsumerMember:
        """Return the static member with the new member id with which it came back."""
        return replace(self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=0)
