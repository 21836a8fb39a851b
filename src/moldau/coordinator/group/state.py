"""The state of one shard of the group coordinator: its groups, their offsets and the deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from moldau.base.clock import Clock
from moldau.base.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, group_integer
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.transactional_offsets import TopicAndPartition, TransactionalOffsets
from moldau.coordinator.machine import Deadlines
from moldau.metadata.current import CurrentImage
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.offsets import OffsetCommitValue

TIMES_KEPT: Final = 20_000
"""Of groups, also of some that are gone: then they are looked up again."""


class MemberTimes(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(slots=True)
class GroupState:
    settings: GroupSettings
    current: CurrentImage
    clock: Clock
    rng: Random
    groups: dict[str, Group] = field(default_factory=dict)
    deadlines: Deadlines = field(default_factory=Deadlines)
    offsets: dict[str, dict[str, dict[int, OffsetCommitValue]]] = field(default_factory=dict)
    """Committed offsets by group, topic and partition. A group with offsets is always in `groups`."""
    transactional_offsets: TransactionalOffsets = field(default_factory=TransactionalOffsets)
    """Offsets in open transactions. A group with such offsets is always in `groups`, too."""
    postponed_removals: dict[tuple[str, TopicAndPartition], OffsetCommitValue] = field(default_factory=dict)
    """Offsets of deleted topics, by group and partition, that stay until no open transaction has committed one for a
    new topic of that name: their removal would remove it too."""

    times: dict[str, MemberTimes] = field(default_factory=dict)
    """Of groups that were asked for since configs have changed."""
    configs_of_times: object = None
    """The configs of the image from which these are."""

    def times_of(self, group_id: str) -> MemberTimes:
        """Return the times of a consumer group's members; it may have some of its own. Nearly every heartbeat asks."""
        configs = self.current.image.configs
        if configs is not self.configs_of_times or len(self.times) >= TIMES_KEPT:
            self.times, self.configs_of_times = {}, configs
        known = self.times.get(group_id)
        if known is None:
            own, settings = self.current.image.configs_of(ConfigResource.GROUP, group_id), self.settings
            known = self.times[group_id] = MemberTimes(
                group_integer(SESSION_TIMEOUT, own, settings.consumer_session_timeout_ms),
                group_integer(HEARTBEAT_INTERVAL, own, settings.consumer_heartbeat_interval_ms),
            )
        return known
