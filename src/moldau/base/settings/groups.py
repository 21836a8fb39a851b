"""Broker keys of groups and their offsets."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import CLUSTER_WIDE, INT, LIST, LONG, SHORT, STRING, ConfigDef, OneOf, Range
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
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = ConfigDef(
    "group.consumer.assignment.interval.ms", INT, 0, Range(0),
    "The least time between two assignments of a consumer group. Kafka's default is 1,000.",
    update_mode=CLUSTER_WIDE)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS: Final = ConfigDef(
    "group.consumer.min.assignment.interval.ms", INT, 0, Range(0),
    "The least consumer.assignment.interval.ms that a group may have as its own config.")
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS: Final = ConfigDef(
    "group.consumer.max.assignment.interval.ms", INT, 15_000, Range(0),
    "The greatest consumer.assignment.interval.ms that a group may have as its own config.")
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
# Share groups
GROUP_SHARE_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "group.share.session.timeout.ms", INT, 45_000, Range(1),
    "Time without heartbeats after which a member of a share group is removed.")
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "group.share.min.session.timeout.ms", INT, 45_000, Range(1),
    "The least share.session.timeout.ms that a group may have as its own config.")
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "group.share.max.session.timeout.ms", INT, 60_000, Range(1),
    "The greatest share.session.timeout.ms that a group may have as its own config.")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS: Final = ConfigDef(
    "group.share.heartbeat.interval.ms", INT, 5000, Range(1),
    "Heartbeat interval of members of share groups.")
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS: Final = ConfigDef(
    "group.share.min.heartbeat.interval.ms", INT, 5000, Range(1),
    "The least share.heartbeat.interval.ms that a group may have as its own config.")
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS: Final = ConfigDef(
    "group.share.max.heartbeat.interval.ms", INT, 15_000, Range(1),
    "The greatest share.heartbeat.interval.ms that a group may have as its own config.")
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS: Final = ConfigDef(
    "group.share.assignment.interval.ms", INT, 0, Range(0),
    "The least time between two assignments of a share group. Kafka's default is 1,000.",
    update_mode=CLUSTER_WIDE)
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS: Final = ConfigDef(
    "group.share.min.assignment.interval.ms", INT, 0, Range(0),
    "The least share.assignment.interval.ms that a group may have as its own config.")
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS: Final = ConfigDef(
    "group.share.max.assignment.interval.ms", INT, 15_000, Range(0),
    "The greatest share.assignment.interval.ms that a group may have as its own config.")
GROUP_SHARE_RECORD_LOCK_DURATION_MS: Final = ConfigDef(
    "group.share.record.lock.duration.ms", INT, 30_000, Range(1000, 3_600_000),
    "How long a record stays locked for the member of a share group that has acquired it.")
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS: Final = ConfigDef(
    "group.share.min.record.lock.duration.ms", INT, 15_000, Range(1000, 30_000),
    "The least share.record.lock.duration.ms that a group may have as its own config.")
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS: Final = ConfigDef(
    "group.share.max.record.lock.duration.ms", INT, 60_000, Range(30_000, 3_600_000),
    "The greatest share.record.lock.duration.ms that a group may have as its own config.")
GROUP_SHARE_DELIVERY_COUNT_LIMIT: Final = ConfigDef(
    "group.share.delivery.count.limit", INT, 5, Range(2, 10),
    "How often a record is delivered to a share group at most; then it is given up.")
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT: Final = ConfigDef(
    "group.share.min.delivery.count.limit", INT, 2, Range(2, 5),
    "The least share.delivery.count.limit that a group may have as its own config.")
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT: Final = ConfigDef(
    "group.share.max.delivery.count.limit", INT, 10, Range(5, 25),
    "The greatest share.delivery.count.limit that a group may have as its own config.")
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS: Final = ConfigDef(
    "group.share.partition.max.record.locks", INT, 2000, Range(100, 10_000),
    "How far, in offsets of a partition, a share group may be ahead of its first unfinished record.")
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS: Final = ConfigDef(
    "group.share.min.partition.max.record.locks", INT, 100, Range(100, 2000),
    "The least share.partition.max.record.locks that a group may have as its own config.")
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS: Final = ConfigDef(
    "group.share.max.partition.max.record.locks", INT, 4000, Range(2000, 10_000),
    "The greatest share.partition.max.record.locks that a group may have as its own config.")
GROUP_SHARE_MAX_SIZE: Final = ConfigDef(
    "group.share.max.size", INT, 200, Range(1, 1000),
    "Maximum number of members of a share group.")
GROUP_SHARE_MAX_SHARE_SESSIONS: Final = ConfigDef(
    "group.share.max.share.sessions", INT, 2000, Range(1),
    "Maximum number of share sessions of a broker.")
GROUP_SHARE_ASSIGNORS: Final = ConfigDef(
    "group.share.assignors", LIST, ("simple",), None,
    "The assignor of the server for share groups; there is only simple.")
GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS: Final = ConfigDef(
    "group.share.initialize.retry.interval.ms", INT, 30_000, Range(1),
    "Time after which the coordinator again initializes share states that are still not initialized.",
    internal=True)
