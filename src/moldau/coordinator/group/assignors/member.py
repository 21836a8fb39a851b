"""The interface of assignors: the members of a group go in, an assignment comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from moldau.base.ids import Uuid


@dataclass(frozen=True, slots=True)
class AssignorMember:
    member_id: str
    instance_id: str | None
    rack_id: str | None
    topics: frozenset[Uuid]
    """The topics it subscribes to."""
    assigned: Mapping[Uuid, frozenset[int]]
    """Its target of the last assignment."""


Assignment = dict[str, dict[Uuid, frozenset[int]]]
"""Every member's partitions by topic, without topics of which it has no partition."""


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """The name by which members ask for it."""
        ...

    def assign(self, members: Mapping[str, AssignorMember], partitions: Mapping[Uuid, int]) -> Assignment:
        """Assign every partition to one member that subscribes to its topic. `partitions` has the number of partitions
        by topic; a topic that is not in it has none. The order of `members` does not change the result."""
        ...
