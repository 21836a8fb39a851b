"""A member of a consumer group: what it said of itself, what it has, and how far it has come. A value; a changed member
is another one.

    STABLE --a new target takes something away--> UNREVOKED --the client gave it up--> STABLE or UNRELEASED
    STABLE --a new target gives something that another still has--> UNRELEASED --the other gave it up--> STABLE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from moldau.base.ids import Uuid
from moldau.coordinator.group.consumer_records import ClassicMemberMetadata

Partitions = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which the member got it (KIP-1251). A topic without any is left out."""

Target = Mapping[Uuid, frozenset[int]]
"""What a member should have."""

NO_PARTITIONS: Final[Partitions] = {}
NO_TARGET: Final[Target] = {}

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member is away and means to be back before its session ends."""


class MemberState(IntEnum):
    """By the numbers of the log."""

    STABLE = 0
    UNREVOKED = 1
    """It has yet to give up partitions before it can go on to the next epoch."""
    UNRELEASED = 2
    """It is in the newest epoch and waits for partitions that others have yet to give up."""
    UNKNOWN = 127
    """Written by something younger than this code."""

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
    """Still its own, until it says that it gave them up."""
    classic_member_metadata: ClassicMemberMetadata | None = None
    """Of a member that speaks the classic protocol."""

    @property
    def is_classic(self) -> bool:
        return self.classic_member_metadata is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.member_epoch == epoch and self.state is MemberState.STABLE

    def reads_as(self, other: ConsumerMember) -> bool:
        """Whether both subscribe to the same."""
        return self.topic_names == other.topic_names and self.pattern == other.pattern

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Since when it has the partition; None if it does not."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def advanced(self, epoch: int, state: MemberState, assigned: Partitions, pending: Partitions) -> ConsumerMember:
        """The member one step on. Its last epoch is kept: the client may not have heard of the new one yet."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )

    def away(self) -> ConsumerMember:
        """A static member that said it will be back. Whoever comes back has another id, and none of the old epochs."""
        assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in self.assigned.items()}
        return replace(self, member_epoch=STATIC_LEAVE_EPOCH, assigned=assigned, pending_revocation=NO_PARTITIONS)

    def succeeded_by(self, member_id: str) -> ConsumerMember:
        """The member under the id with which its static instance came back."""
        return replace(self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=0)
