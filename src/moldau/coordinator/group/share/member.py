"""A member of a share group: what it sent about itself, and its assignment. Immutable: a change makes a new object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from moldau.base.ids import Uuid

PartitionsByTopicId = Mapping[Uuid, frozenset[int]]
NO_PARTITIONS: Final[PartitionsByTopicId] = {}

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STABLE: Final = 0
"""The state of every member, as it is in the log: nothing has to be revoked before another member may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: PartitionsByTopicId = field(default_factory=lambda: NO_PARTITIONS)

    pattern: ClassVar[str] = ""
    """Share consumers subscribe by names only."""

    def in_epoch(self, epoch: int, assigned: PartitionsByTopicId) -> ShareMember:
        """Return the member with what it has in an epoch. It keeps its previous epoch: the client may not know the new
        one yet."""
        if epoch == self.member_epoch:
            return replace(self, assigned=assigned)
        return replace(self, member_epoch=epoch, previous_member_epoch=self.member_epoch, assigned=assigned)
