"""What every kind of group can be asked, so that offsets and listings need not know which kind it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from moldau.base.ids import Uuid
from moldau.coordinator.machine import CoordinatorRecord

PartitionCheck = Callable[[Uuid, int], None]
"""Raises KafkaError for a partition, by topic id, that may not be committed."""


class Group(Protocol):
    group_id: str

    @property
    def type_name(self) -> str:
        """`classic` or `consumer`, as ListGroups tells it."""
        ...

    @property
    def protocol_type(self) -> str:
        """`consumer` for consumers; empty where nobody has said yet."""
        ...

    @property
    def state_name(self) -> str:
        """As Kafka spells it: Empty, PreparingRebalance, Assigning, Stable…"""
        ...

    @property
    def is_empty(self) -> bool: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, as far as anybody can know: its offsets are then not to be removed."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, in_transaction: bool = False
    ) -> PartitionCheck | None:
        """Raises KafkaError unless whoever says so may commit; `epoch` is the generation or the member's epoch.

        In a transaction nobody need say who they are, as older producers cannot.

        If it depends on the partition, what is returned raises for those of which it may not.
        """
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises KafkaError if a member that says who it is is not, or no longer, that."""
        ...

    def offsets_expire_after_ms(self, commit_timestamp_ms: int) -> int | None:
        """From which time on the wall retention counts for an offset committed then; None while none must expire."""
        ...

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """What takes the group back out of the log."""
        ...
