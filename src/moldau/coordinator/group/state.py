"""All that one shard of the coordinator knows: its groups, their offsets, and what is to happen when."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from moldau.base.clock import Clock
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import OffsetCommitValue
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.transactional_offsets import TransactionalOffsets
from moldau.coordinator.machine import Deadlines
from moldau.metadata.current import CurrentImage


@dataclass(slots=True)
class GroupState:
    settings: GroupSettings
    current: CurrentImage
    clock: Clock
    rng: Random
    groups: dict[str, Group] = field(default_factory=dict)
    deadlines: Deadlines = field(default_factory=Deadlines)
    offsets: dict[str, dict[str, dict[int, OffsetCommitValue]]] = field(default_factory=dict)
    """What was committed, by group, topic and partition. A group with offsets exists."""
    transactional_offsets: TransactionalOffsets = field(default_factory=TransactionalOffsets)
    """What will be committed if the transactions of which it is part are. A group with such exists too."""
