"""The interface of all kinds of groups, so that offsets and listings need not know the kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from moldau.base.ids import Uuid
from moldau.coordinator.machine import CoordinatorRecord

PartitionCheck = Callable[[Uuid, int], None]
"""Takes a topic id and a partition; raises KafkaError if that partition may not be committed."""


class Group(Protocol):
    group_id: str

    @property
    def members(self) -> Mapping[str, object]:
        """By member id."""
        ...

    @property
    def type_name(self) -> str:
        """`classic`, `consumer` or `share`, as in ListGroups."""
        ...

    @property
    def protocol_type(self) -> str:
        """`consumer` for consumers, `share` for share consumers; empty if no member has joined yet."""
        ...

    @property
    def state_name(self) -> str:
        """Kafka's name of the state: Empty, PreparingRebalance, Assigning, Stable…"""
        ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def stays_when_empty(self) -> bool:
        """Whether the group stays without members and offsets: it does not expire, and no group of another type
        replaces it."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, as far as the coordinator knows. If so, its offsets must not be removed."""
        ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, request_version: int, in_transaction: bool = False
    ) -> PartitionCheck | None:
        """Raise KafkaError if this member may not commit; `epoch` is the generation or the member epoch.

        In a transaction the member may be left out, because older producers do not send it.

        If the permission depends on the partition, return a check to call for each partition.
        """
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError if the request names a member that is not, or no longer, in the group in that epoch."""
        ...

    def retention_counts_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return the wall-clock time from which the retention of an offset committed at `commit_timestamp_ms` counts,
        or None while no offset may expire."""
        ...

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """Return the tombstones that remove the group from the log."""
        ...
