"""The settings of the group coordinator, from properties with Kafka's names."""

from __future__ import annotations

from moldau.base.setting_sources import Values
from moldau.coordinator.group.assignors import ASSIGNORS
from moldau.coordinator.group.settings import GroupSettings


def read_groups(values: Values) -> GroupSettings:
    assignors = values.strings("group.consumer.assignors")
    for name in assignors:
        if name not in ASSIGNORS:
            raise values.error("group.consumer.assignors", f"{name!r} is unknown; expected {', '.join(ASSIGNORS)}")
    return GroupSettings(
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
