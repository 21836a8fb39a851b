"""Settings of the group coordinator: Kafka's names without `group.`; the first is from
`group.coordinator.rebalance.protocols`, the last two are `offset.metadata.max.bytes` and `offsets.retention.minutes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.setting_sources import Values
from moldau.coordinator.group.assignors import ASSIGNORS


@dataclass(frozen=True, slots=True)
class GroupSettings:
    has_consumer_protocol: bool = True
    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default, used if no member names one."""
    consumer_migration_policy: str = "bidirectional"
    """How a group with members may change its protocol: disabled, upgrade, downgrade, bidirectional."""
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000


def read_groups(values: Values) -> GroupSettings:
    protocols = values.strings("group.coordinator.rebalance.protocols")
    if "classic" not in protocols:
        raise values.error(
            "group.coordinator.rebalance.protocols", "Disabling the 'classic' protocol is not supported."
        )
    assignors = values.strings("group.consumer.assignors")
    if not assignors:
        raise values.error("group.consumer.assignors", f"is empty; expected at least one of {', '.join(ASSIGNORS)}")
    for name in assignors:
        if name not in ASSIGNORS:
            raise values.error("group.consumer.assignors", f"{name!r} is unknown; expected {', '.join(ASSIGNORS)}")
    return GroupSettings(
        has_consumer_protocol="consumer" in protocols,
        initial_rebalance_delay_ms=values.integer("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=values.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=values.integer("group.max.session.timeout.ms"),
        max_size=values.integer("group.max.size"),
        consumer_session_timeout_ms=values.integer("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=values.integer("group.consumer.heartbeat.interval.ms"),
        consumer_max_size=values.integer("group.consumer.max.size"),
        consumer_assignors=assignors,
        consumer_migration_policy=(values.text("group.consumer.migration.policy") or "").lower(),
        offset_metadata_bytes_max=values.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=values.integer("offsets.retention.minutes") * 60_000,
    )
