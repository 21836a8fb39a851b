"""The assignors that run in the coordinator (KIP-848): pure functions of a group's members and their topics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from moldau.coordinator.group.assignors.member import Assignment, Assignor, AssignorMember
from moldau.coordinator.group.assignors.range import RangeAssignor
from moldau.coordinator.group.assignors.uniform import UniformAssignor

ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor())}
)

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "AssignorMember"]
