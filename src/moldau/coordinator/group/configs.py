"""The configs that hold for a group: its own, as far as the bounds of the broker allow them, or those of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.base.config_def import BrokerLayers
from moldau.base.group_configs import (
    ASSIGNMENT_INTERVAL,
    DEAD_LETTER_COPY_RECORD_ENABLE,
    DEAD_LETTER_TOPIC,
    HEARTBEAT_INTERVAL,
    READ_COMMITTED,
    SESSION_TIMEOUT,
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_ISOLATION_LEVEL,
    SHARE_PARTITION_MAX_RECORD_LOCKS,
    SHARE_RECORD_LOCK_DURATION,
    SHARE_RENEW_ACKNOWLEDGE_ENABLE,
    SHARE_SESSION_TIMEOUT,
    BoundedConfig,
    group_integer_within_bounds,
    group_value,
)
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.current import CurrentImage
from moldau.metadata.records import ConfigResource
from moldau.share.limits import ShareLimits

GROUPS_KEPT: Final = 20_000
"""Of each kind, also some that are gone: then they are looked up again."""
CONSUMER_TIMES: Final = (SESSION_TIMEOUT, HEARTBEAT_INTERVAL, ASSIGNMENT_INTERVAL)
SHARE_TIMES: Final = (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL, SHARE_ASSIGNMENT_INTERVAL)


class MemberTimes(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    """The least time between two target assignments of the group; 0 for none."""


def may_assign(last_ms: int, times: MemberTimes, now_ms: int) -> bool:
    """Return whether the last target assignment of a group was long enough ago; `last_ms` is 0 if there was none. If
    not, a later heartbeat computes the next one: members that come or go together are then in it together. If the clock
    went back since, nobody waits until it is there again."""
    return not last_ms <= now_ms < last_ms + times.assignment_interval_ms


class GroupConfigs:
    """What holds is kept until a config of anything changes: requests ask for it, and nothing else does so often."""

    def __init__(self, current: CurrentImage, node_id: int = 0, static: Mapping[str, str] | None = None) -> None:
        self._current = current
        self._node_id = node_id
        self._static: Mapping[str, str] = {} if static is None else static
        self.times: dict[str, MemberTimes] = {}
        """Of consumer groups that were asked for since configs have changed."""
        self.resolved_from: object = None
        """The configs of the image from which these are."""
        self._share_times: dict[str, MemberTimes] = {}
        self._share_limits: dict[str, ShareLimits] = {}

    def times_of(self, group_id: str) -> MemberTimes:
        """Return the times of a consumer group's members. Nearly every heartbeat asks."""
        self._drop_old()
        known = self.times.get(group_id)
        if known is None:
            known = self.times[group_id] = self._times(group_id, CONSUMER_TIMES)
        return known

    def share_times_of(self, group_id: str) -> MemberTimes:
        """Return the times of a share group's members."""
        self._drop_old()
        known = self._share_times.get(group_id)
        if known is None:
            known = self._share_times[group_id] = self._times(group_id, SHARE_TIMES)
        return known

    def share_limits_of(self, group_id: str) -> ShareLimits:
        self._drop_old()
        known = self._share_limits.get(group_id)
        if known is None:
            known = self._share_limits[group_id] = self._limits(group_id)
        return known

    def _drop_old(self) -> None:
        configs = self._current.image.configs
        kept = max(len(self.times), len(self._share_times), len(self._share_limits))
        if configs is not self.resolved_from or kept >= GROUPS_KEPT:
            self.times, self._share_times, self._share_limits = {}, {}, {}
            self.resolved_from = configs

    def _own_and_broker(self, group_id: str) -> tuple[Mapping[str, str], BrokerLayers]:
        image = self._current.image
        return image.configs_of(ConfigResource.GROUP, group_id), broker_layers(image, self._node_id, self._static)

    def _times(self, group_id: str, rows: tuple[BoundedConfig, ...]) -> MemberTimes:
        own, broker = self._own_and_broker(group_id)
        return MemberTimes(*(group_integer_within_bounds(row, own, broker) for row in rows))

    def _limits(self, group_id: str) -> ShareLimits:
        own, broker = self._own_and_broker(group_id)
        return ShareLimits(
            record_lock_duration_ms=group_integer_within_bounds(SHARE_RECORD_LOCK_DURATION, own, broker),
            delivery_count_limit=group_integer_within_bounds(SHARE_DELIVERY_COUNT_LIMIT, own, broker),
            partition_max_record_locks=group_integer_within_bounds(SHARE_PARTITION_MAX_RECORD_LOCKS, own, broker),
            auto_offset_reset=str(group_value(SHARE_AUTO_OFFSET_RESET, own)),
            is_read_committed=group_value(SHARE_ISOLATION_LEVEL, own) == READ_COMMITTED,
            allows_renewal=bool(group_value(SHARE_RENEW_ACKNOWLEDGE_ENABLE, own)),
            dead_letter_topic=str(group_value(DEAD_LETTER_TOPIC, own)),
            copies_dead_letters=bool(group_value(DEAD_LETTER_COPY_RECORD_ENABLE, own)),
        )
