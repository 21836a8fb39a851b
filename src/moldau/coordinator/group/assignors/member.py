"""What an assignor is told of a group, and what it says."""

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
    """What it should have by the last assignment."""


Assignment = dict[str, dict[Uuid, frozenset[int]]]
"""Every member's partitions by topic. A topic of which a member has nothing is left out."""


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """As members ask for it."""
        ...

    def assign(self, members: Mapping[str, AssignorMember], partitions: Mapping[Uuid, int]) -> Assignment:
        """Gives every partition of the topics to one member that subscribes to its topic. `partitions` tells how many a
        topic has; a topic that is not in it has none. Equal groups get equal assignments, whatever order they come in.
        """
        ...
