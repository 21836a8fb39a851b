"""Where a group changes its protocol while it has members. What is needed for that is built elsewhere and handed in;
without it, a group is of the kind that it was made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.group import Group
from moldau.coordinator.machine import Answer, CoordinatorRecord


@dataclass(frozen=True, slots=True)
class Conversion:
    """What makes a group one of the other kind."""

    records: Sequence[CoordinatorRecord]
    answers: Sequence[Answer] = ()
    applied: Callable[[], None] | None = None
    """See Outcome."""


NO_CONVERSION = Conversion(())


class Migration(Protocol):
    def upgraded(self, group: Group) -> tuple[ConsumerGroup, Conversion]:
        """A classic group with members, which a member of the other protocol wants to join: what it becomes, and what
        makes it so. The group that is given back is looked at only; the records make the real one. Raises
        GROUP_ID_NOT_FOUND if it cannot be. Nothing is changed: whoever wants to join may yet be refused."""
        ...

    def downgraded(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> Conversion | None:
        """Members leave, and those that stay may all be classic: what makes the group a classic one; None if it stays
        what it is."""
        ...


class NoMigration:
    def upgraded(self, group: Group) -> tuple[ConsumerGroup, Conversion]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} is not a consumer group")

    def downgraded(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> Conversion | None:
        return None
