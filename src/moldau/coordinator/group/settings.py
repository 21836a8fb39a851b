"""Settings of the group coordinator: Kafka's names without `group.`; the first is from
`group.coordinator.rebalance.protocols`, the last two are `offset.metadata.max.bytes` and `offsets.retention.minutes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.setting_sources import Values
from moldau.base.settings import groups as keys
from moldau.base.settings.fields import read_settings, setting, times
from moldau.coordinator.group.assignors import ASSIGNORS
from moldau.coordinator.group.assignors.simple import SIMPLE


@dataclass(frozen=True, slots=True)
class GroupSettings:
    has_consumer_protocol: bool = setting(keys.GROUP_COORDINATOR_REBALANCE_PROTOCOLS, lambda names: "consumer" in names)
    initial_rebalance_delay_ms: int = setting(keys.GROUP_INITIAL_REBALANCE_DELAY_MS)
    min_session_timeout_ms: int = setting(keys.GROUP_MIN_SESSION_TIMEOUT_MS)
    max_session_timeout_ms: int = setting(keys.GROUP_MAX_SESSION_TIMEOUT_MS)
    max_size: int = setting(keys.GROUP_MAX_SIZE)
    consumer_max_size: int = setting(keys.GROUP_CONSUMER_MAX_SIZE)
    consumer_assignors: tuple[str, ...] = setting(keys.GROUP_CONSUMER_ASSIGNORS)
    """The first is the default, used if no member names one."""
    consumer_migration_policy: str = setting(keys.GROUP_CONSUMER_MIGRATION_POLICY, str.lower)
    """How a group with members may change its protocol: disabled, upgrade, downgrade, bidirectional."""
    share_max_size: int = setting(keys.GROUP_SHARE_MAX_SIZE)
    share_sessions_max: int = setting(keys.GROUP_SHARE_MAX_SHARE_SESSIONS)
    """At each broker."""
    share_initialize_retry_interval_ms: int = setting(keys.GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS)
    offset_metadata_bytes_max: int = setting(keys.OFFSET_METADATA_MAX_BYTES)
    offsets_retention_ms: int = setting(keys.OFFSETS_RETENTION_MINUTES, times(60_000))


def read_groups(values: Values) -> GroupSettings:
    protocols = values.strings(keys.GROUP_COORDINATOR_REBALANCE_PROTOCOLS)
    if "classic" not in protocols:
        raise values.error(
            keys.GROUP_COORDINATOR_REBALANCE_PROTOCOLS, "Disabling the 'classic' protocol is not supported."
        )
    assignors = values.strings(keys.GROUP_CONSUMER_ASSIGNORS)
    if not assignors:
        raise values.error(keys.GROUP_CONSUMER_ASSIGNORS, f"is empty; expected at least one of {', '.join(ASSIGNORS)}")
    for name in assignors:
        if name not in ASSIGNORS:
            raise values.error(keys.GROUP_CONSUMER_ASSIGNORS, f"{name!r} is unknown; expected {', '.join(ASSIGNORS)}")
    if values.strings(keys.GROUP_SHARE_ASSIGNORS) != (SIMPLE,):
        raise values.error(keys.GROUP_SHARE_ASSIGNORS, f"there is only one assignor for share groups: {SIMPLE}")
    settings = read_settings(GroupSettings, values.value)
    if settings.share_sessions_max < settings.share_max_size:
        row, members = keys.GROUP_SHARE_MAX_SHARE_SESSIONS, keys.GROUP_SHARE_MAX_SIZE
        raise values.error(row, f"{row} must be greater than or equal to {members}, {settings.share_max_size}")
    return settings
