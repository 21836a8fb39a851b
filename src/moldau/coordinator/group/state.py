"""The state of one shard of the group coordinator: its groups, their offsets and the deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from moldau.base.clock import Clock
from moldau.coordinator.group.configs import GroupConfigs
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.transactional_offsets import TopicAndPartition, TransactionalOffsets
from moldau.coordinator.machine import Deadlines
from moldau.metadata.current import CurrentImage
from moldau.wire.log_records.offsets import OffsetCommitValue


@dataclass(slots=True)
class GroupState:
    settings: GroupSettings
    current: CurrentImage
    clock: Clock
    rng: Random
    configs: GroupConfigs
    groups: dict[str, Group] = field(default_factory=dict)
    deadlines: Deadlines = field(default_factory=Deadlines)
    offsets: dict[str, dict[str, dict[int, OffsetCommitValue]]] = field(default_factory=dict)
    """Committed offsets by group, topic and partition. A group with offsets is always in `groups`."""
    transactional_offsets: TransactionalOffsets = field(default_factory=TransactionalOffsets)
    """Offsets in open transactions. A group with such offsets is always in `groups`, too."""
    postponed_removals: dict[tuple[str, TopicAndPartition], OffsetCommitValue] = field(default_factory=dict)
    """Offsets of deleted topics, by group and partition, that stay until no open transaction has committed one for a
    new topic of that name: their removal would remove it too."""
