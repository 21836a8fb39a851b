"""Topic keys. Most fall back to a broker key, and have its type, default and valid values.

Names, types, defaults, limits and broker keys to fall back to are those of Apache Kafka 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from moldau.base.config_def import BOOLEAN, CLUSTER_WIDE, INT, LIST, LONG, ConfigDef, ConfigValue, Range, Synonym
from moldau.base.settings import accepted, cluster, log

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS

THROTTLED_REPLICA: Final = re.compile("([0-9]{1,10}):([0-9]{1,10})")
"""The partition and the broker."""


@dataclass(frozen=True, slots=True)
class ValidThrottledReplicas:
    """`*`, or a list of partition:broker."""

    side: str

    def complaint(self, value: ConfigValue) -> str | None:
        assert isinstance(value, tuple), "throttled replicas are a list"
        if value == ("*",) or all(THROTTLED_REPLICA.fullmatch(item) for item in value):
            return None
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        return (
            f"{self.side}.replication.throttled.replicas must be the literal '*' or a list of replicas in the"
            f" following format: {form}"
        )


def _like(row: ConfigDef, name: str = "", documentation: str = "") -> ConfigDef:
    """Return a topic key that falls back to this broker key, and has its name and documentation unless others are
    given."""
    return replace(
        row,
        name=name or row.name,
        documentation=documentation or row.documentation,
        synonyms=(Synonym(row.name),),
        update_mode=CLUSTER_WIDE,
    )


def _like_first(name: str, validator: Range, documentation: str, *rows: tuple[ConfigDef, int]) -> ConfigDef:
    """Return a topic key that falls back to the first of these broker keys that has a value. The number is the factor
    to the unit of the topic key."""
    synonyms = tuple(Synonym(row.name, factor) for row, factor in rows)
    defaults = (
        synonym.convert(row.default)
        for synonym, (row, _) in zip(synonyms, rows, strict=True)
        if row.default is not None
    )
    return ConfigDef(name, LONG, next(defaults), validator, documentation, synonyms, CLUSTER_WIDE)


SEGMENT_BYTES: Final = _like(log.LOG_SEGMENT_BYTES, "segment.bytes")
SEGMENT_MS: Final = _like_first(
    "segment.ms",
    Range(1),
    "Age at which a new segment begins even if the last one is not full.",
    (log.LOG_ROLL_MS, 1),
    (log.LOG_ROLL_HOURS, HOUR_MS),
)
SEGMENT_JITTER_MS: Final = _like_first(
    "segment.jitter.ms",
    Range(0),
    "Largest random time subtracted from segment.ms, so that segments do not all roll at once.",
    (log.LOG_ROLL_JITTER_MS, 1),
    (log.LOG_ROLL_JITTER_HOURS, HOUR_MS),
)
SEGMENT_INDEX_BYTES: Final = _like(log.LOG_INDEX_SIZE_MAX_BYTES, "segment.index.bytes")
FLUSH_MESSAGES: Final = _like(
    log.LOG_FLUSH_INTERVAL_MESSAGES, "flush.messages", "Records after which the log is forced to disk."
)
FLUSH_MS: Final = _like_first(
    "flush.ms",
    Range(0),
    "Longest time records wait before they are forced to disk.",
    (log.LOG_FLUSH_INTERVAL_MS, 1),
    (log.LOG_FLUSH_SCHEDULER_INTERVAL_MS, 1),
)
RETENTION_BYTES: Final = _like(log.LOG_RETENTION_BYTES, "retention.bytes")
RETENTION_MS: Final = _like_first(
    "retention.ms",
    Range(-1),
    "Age at which records may be deleted; -1 keeps them for ever.",
    (log.LOG_RETENTION_MS, 1),
    (log.LOG_RETENTION_MINUTES, MINUTE_MS),
    (log.LOG_RETENTION_HOURS, HOUR_MS),
)
MAX_MESSAGE_BYTES: Final = _like(log.MESSAGE_MAX_BYTES, "max.message.bytes")
INDEX_INTERVAL_BYTES: Final = _like(log.LOG_INDEX_INTERVAL_BYTES, "index.interval.bytes")
DELETE_RETENTION_MS: Final = _like(log.LOG_CLEANER_DELETE_RETENTION_MS, "delete.retention.ms")
MIN_COMPACTION_LAG_MS: Final = _like(log.LOG_CLEANER_MIN_COMPACTION_LAG_MS, "min.compaction.lag.ms")
MAX_COMPACTION_LAG_MS: Final = _like(log.LOG_CLEANER_MAX_COMPACTION_LAG_MS, "max.compaction.lag.ms")
FILE_DELETE_DELAY_MS: Final = _like(log.LOG_SEGMENT_DELETE_DELAY_MS, "file.delete.delay.ms")
MIN_CLEANABLE_DIRTY_RATIO: Final = _like(
    log.LOG_CLEANER_MIN_CLEANABLE_RATIO,
    "min.cleanable.dirty.ratio",
    "Share of the log that must be dirty before it is compacted.",
)
CLEANUP_POLICY: Final = _like(log.LOG_CLEANUP_POLICY, "cleanup.policy")
UNCLEAN_LEADER_ELECTION_ENABLE: Final = _like(cluster.UNCLEAN_LEADER_ELECTION_ENABLE)
MIN_INSYNC_REPLICAS: Final = _like(log.MIN_INSYNC_REPLICAS)
COMPRESSION_TYPE: Final = _like(log.COMPRESSION_TYPE)
COMPRESSION_GZIP_LEVEL: Final = _like(log.COMPRESSION_GZIP_LEVEL)
COMPRESSION_LZ4_LEVEL: Final = _like(log.COMPRESSION_LZ4_LEVEL)
COMPRESSION_ZSTD_LEVEL: Final = _like(log.COMPRESSION_ZSTD_LEVEL)
PREALLOCATE: Final = _like(
    accepted.LOG_PREALLOCATE, "preallocate", "Whether a new segment's file gets its full size at once."
)
MESSAGE_TIMESTAMP_TYPE: Final = _like(log.LOG_MESSAGE_TIMESTAMP_TYPE, "message.timestamp.type")
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = _like(
    log.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS, "message.timestamp.before.max.ms"
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = _like(log.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS, "message.timestamp.after.max.ms")
ERRORS_DEADLETTERQUEUE_GROUP_ENABLE: Final = ConfigDef(
    "errors.deadletterqueue.group.enable",
    BOOLEAN,
    False,
    None,
    "Whether groups may write their dead letters into the topic.",
    update_mode=CLUSTER_WIDE,
)
LEADER_REPLICATION_THROTTLED_REPLICAS: Final = ConfigDef(
    "leader.replication.throttled.replicas",
    LIST,
    (),
    ValidThrottledReplicas("leader"),
    "Replicas whose sending is throttled on the leader's side.",
    update_mode=CLUSTER_WIDE,
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS: Final = ConfigDef(
    "follower.replication.throttled.replicas",
    LIST,
    (),
    ValidThrottledReplicas("follower"),
    "Replicas whose fetching is throttled on the follower's side.",
    update_mode=CLUSTER_WIDE,
)
REMOTE_STORAGE_ENABLE: Final = ConfigDef(
    "remote.storage.enable",
    BOOLEAN,
    False,
    documentation="Whether closed segments are copied to remote storage; not supported.",
    update_mode=CLUSTER_WIDE,
)
LOCAL_RETENTION_MS: Final = _like(
    accepted.LOG_LOCAL_RETENTION_MS,
    "local.retention.ms",
    "Age at which segments in remote storage are deleted locally; -2 is retention.ms.",
)
LOCAL_RETENTION_BYTES: Final = _like(
    accepted.LOG_LOCAL_RETENTION_BYTES,
    "local.retention.bytes",
    "Local size above which segments in remote storage are deleted; -2 is retention.bytes.",
)
REMOTE_LOG_COPY_DISABLE: Final = ConfigDef(
    "remote.log.copy.disable",
    BOOLEAN,
    False,
    documentation="Stop copying segments to remote storage.",
    update_mode=CLUSTER_WIDE,
)
REMOTE_LOG_DELETE_ON_DISABLE: Final = ConfigDef(
    "remote.log.delete.on.disable",
    BOOLEAN,
    False,
    documentation="Delete the remote segments when remote storage is switched off.",
    update_mode=CLUSTER_WIDE,
)
INTERNAL_SEGMENT_BYTES: Final = ConfigDef(
    "internal.segment.bytes",
    INT,
    None,
    documentation="Overrides segment.bytes with a size below its minimum, for tests.",
    update_mode=CLUSTER_WIDE,
    internal=True,
)
