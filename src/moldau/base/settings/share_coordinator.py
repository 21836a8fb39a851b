"""Broker keys of the share coordinator and of dead letters."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import BOOLEAN, CLUSTER_WIDE, INT, SHORT, STRING, ConfigDef, Range

# fmt: off
# The share coordinator
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR: Final = ConfigDef(
    "share.coordinator.state.topic.replication.factor", SHORT, 1, Range(1),
    "Replicas of the topic __share_group_state.")
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR: Final = ConfigDef(
    "share.coordinator.state.topic.min.isr", SHORT, 1, Range(1),
    "In-sync replicas that are needed to change the state of a share group.")
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS: Final = ConfigDef(
    "share.coordinator.state.topic.num.partitions", INT, 50, Range(1),
    "Partitions of __share_group_state; fixed once it exists.")
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES: Final = ConfigDef(
    "share.coordinator.state.topic.segment.bytes", INT, 104_857_600, Range(1),
    "Segment size of __share_group_state: small ones load and are deleted faster.")
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT: Final = ConfigDef(
    "share.coordinator.snapshot.update.records.per.snapshot", INT, 500, Range(0, 500),
    "Changes of a partition's state in a share group until all of it is written again.")
SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS: Final = ConfigDef(
    "share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000, Range(1),
    "How old the state of a partition may be in the log; then it is written again, so that what is before it can go.",
    internal=True)
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS: Final = ConfigDef(
    "share.coordinator.state.topic.prune.interval.ms", INT, 300_000, Range(1),
    "How often records of __share_group_state that are no longer needed are deleted.", internal=True)

# Dead letters
ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX: Final = ConfigDef(
    "errors.deadletterqueue.topic.name.prefix", STRING, "dlq.", None,
    "With what the names of topics for dead letters must begin; empty for no such rule.", update_mode=CLUSTER_WIDE)
ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE: Final = ConfigDef(
    "errors.deadletterqueue.auto.create.topics.enable", BOOLEAN, False, None,
    "Create the topic for the dead letters of a share group when the first is written.", update_mode=CLUSTER_WIDE)
