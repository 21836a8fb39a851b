"""Broker keys of groups and their offsets."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import INT, LIST, LONG, SHORT, STRING, ConfigDef, OneOf, Range
from moldau.base.limits import INT32_MAX

# fmt: off
# Groups and their offsets
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = ConfigDef(
    "offsets.topic.replication.factor", SHORT, 1, Range(1),
    "Replicas of the topic __consumer_offsets.")
OFFSETS_TOPIC_NUM_PARTITIONS: Final = ConfigDef(
    "offsets.topic.num.partitions", INT, 50, Range(1),
    "Partitions of __consumer_offsets; fixed once it exists.")
OFFSETS_TOPIC_SEGMENT_BYTES: Final = ConfigDef(
    "offsets.topic.segment.bytes", INT, 104_857_600, Range(1),
    "Segment size of __consumer_offsets: small ones load and clean faster.")
OFFSET_METADATA_MAX_BYTES: Final = ConfigDef(
    "offset.metadata.max.bytes", INT, 4096, None,
    "Longest metadata that may be committed with an offset.")
OFFSETS_RETENTION_MINUTES: Final = ConfigDef(
    "offsets.retention.minutes", INT, 10_080, Range(1),
    "How long offsets are kept after the last member has left their group.")
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Final = ConfigDef(
    "offsets.retention.check.interval.ms", LONG, 600_000, Range(1),
    "How often the broker looks for expired offsets.")
GROUP_MIN_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "group.min.session.timeout.ms", INT, 6000, None,
    "Shortest session timeout that a classic member may request.")
GROUP_MAX_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "group.max.session.timeout.ms", INT, 1_800_000, None,
    "Longest session timeout that a classic member may request.")
GROUP_INITIAL_REBALANCE_DELAY_MS: Final = ConfigDef(
    "group.initial.rebalance.delay.ms", INT, 0, None,
    "How long an empty group waits for more members before its first rebalance.")
GROUP_MAX_SIZE: Final = ConfigDef(
    "group.max.size", INT, INT32_MAX, Range(1),
    "Maximum number of members of a classic group.")
GROUP_COORDINATOR_REBALANCE_PROTOCOLS: Final = ConfigDef(
    "group.coordinator.rebalance.protocols", LIST,
    ("classic", "consumer", "streams"), OneOf(("consumer", "classic", "share", "streams")),
    "Without consumer, the consumer protocol is refused; classic is required.")
GROUP_CONSUMER_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "group.consumer.session.timeout.ms", INT, 45_000, Range(1),
    "Time without heartbeats after which a member of a consumer group is removed.")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Final = ConfigDef(
    "group.consumer.heartbeat.interval.ms", INT, 5000, Range(1),
    "Heartbeat interval of members of consumer groups.")
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "group.consumer.min.session.timeout.ms", INT, 45_000, Range(1),
    "The least consumer.session.timeout.ms that a group may have as its own config.")
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "group.consumer.max.session.timeout.ms", INT, 60_000, Range(1),
    "The greatest consumer.session.timeout.ms that a group may have as its own config.")
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS: Final = ConfigDef(
    "group.consumer.min.heartbeat.interval.ms", INT, 5000, Range(1),
    "The least consumer.heartbeat.interval.ms that a group may have as its own config.")
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS: Final = ConfigDef(
    "group.consumer.max.heartbeat.interval.ms", INT, 15_000, Range(1),
    "The greatest consumer.heartbeat.interval.ms that a group may have as its own config.")
GROUP_CONSUMER_MAX_SIZE: Final = ConfigDef(
    "group.consumer.max.size", INT, INT32_MAX, Range(1),
    "Maximum number of members of a consumer group.")
GROUP_CONSUMER_ASSIGNORS: Final = ConfigDef(
    "group.consumer.assignors", LIST, ("uniform", "range"), None,
    "Assignors of the server for consumer groups; the first is the default.")
GROUP_CONSUMER_MIGRATION_POLICY: Final = ConfigDef(
    "group.consumer.migration.policy", STRING,
    "bidirectional", OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), ignore_case=True),
    "Whether a group may change between the classic and the consumer protocol.")
