"""Settings of the share coordinator and its topic."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.settings import share_coordinator
from moldau.base.settings.fields import setting


@dataclass(frozen=True, slots=True)
class ShareCoordinatorSettings:
    updates_per_snapshot: int = setting(share_coordinator.SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT)
    cold_snapshot_interval_ms: int = setting(share_coordinator.SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS)


@dataclass(frozen=True, slots=True)
class ShareStateTopicSettings:
    """Of the topic __share_group_state."""

    num_partitions: int = setting(share_coordinator.SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS)
    replication_factor: int = setting(share_coordinator.SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR)
    segment_bytes: int = setting(share_coordinator.SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES)
    min_insync_replicas: int = setting(share_coordinator.SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR)
    prune_interval_ms: int = setting(share_coordinator.SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS)
