"""Where a group changes its protocol while it has members. What is needed for that is built elsewhere and handed in;
without it, a group is of the kind that it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.group import Group
from moldau.coordinator.machine import CoordinatorRecord


class Migration(Protocol):
    def upgraded(self, group: Group) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        """A classic group with members, which a member of the other protocol wants to join: what it becomes, and the
        records that make it so. The group that is given back is looked at only; the records make the real one. Raises
        GROUP_ID_NOT_FOUND if it cannot be."""
        ...

    def downgraded(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> list[CoordinatorRecord] | None:
        """Members leave, and those that stay may all be classic: the records that make the group a classic one; None if
        it stays what it is."""
        ...


class NoMigration:
    def upgraded(self, group: Group) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} is not a consumer group")

    def downgraded(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> list[CoordinatorRecord] | None:
        return None
