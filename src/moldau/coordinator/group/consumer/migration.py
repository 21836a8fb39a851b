"""The interface for groups that change their protocol while they have members.

`moldau.coordinator.group.migration.conversions` implements it; without an implementation, a group with members keeps
its protocol.
"""

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
    """The records, answers and callback that convert a group to the other kind."""

    records: Sequence[CoordinatorRecord]
    answers: Sequence[Answer] = ()
    """Added by `on_applied`: if the log refuses the records, the members' requests go on waiting."""
    on_applied: Callable[[], None] | None = None
    """See `Outcome.on_applied`."""


NO_CONVERSION = Conversion(())


class Migration(Protocol):
    def upgrade(self, group: Group) -> tuple[ConsumerGroup, Conversion]:
        """Return the consumer group that a classic group with members becomes, and its conversion, because a consumer
        member wants to join. The returned group is for reading only: the records create the real one. Raise
        GROUP_ID_NOT_FOUND if the group cannot be upgraded. Change nothing: the join may still be refused."""
        ...

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> Conversion | None:
        """Return the conversion to a classic group if all members that stay are classic and it is allowed; else
        None."""
        ...


class NoMigration:
    def upgrade(self, group: Group) -> tuple[ConsumerGroup, Conversion]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} is not a consumer group")

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> Conversion | None:
        return None
