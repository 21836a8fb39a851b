"""Broker keys of topics and their logs. Most are the defaults of topic keys (`topics`)."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import BOOLEAN, CLUSTER_WIDE, DOUBLE, INT, LIST, LONG, STRING, ConfigDef, OneOf, Range
from moldau.base.limits import INT64_MAX

# fmt: off
# Topics
NUM_PARTITIONS: Final = ConfigDef(
    "num.partitions", INT, 1, Range(1),
    "Partitions of a new topic, if the request does not set them.")
DEFAULT_REPLICATION_FACTOR: Final = ConfigDef(
    "default.replication.factor", INT, 1, None,
    "Replicas of a new topic, if the request does not set them.")
AUTO_CREATE_TOPICS_ENABLE: Final = ConfigDef(
    "auto.create.topics.enable", BOOLEAN, True, None,
    "Create a topic when a client first uses it.")
DELETE_TOPIC_ENABLE: Final = ConfigDef(
    "delete.topic.enable", BOOLEAN, True, None,
    "Whether topics may be deleted.")

# The log
LOG_DIR: Final = ConfigDef(
    "log.dir", LIST, ("./moldau-data",), None,
    "The directory where this node keeps all its data; log.dirs overrides it.")
LOG_DIRS: Final = ConfigDef(
    "log.dirs", LIST, None, None,
    "The directory where this node keeps all its data; one only.")
LOG_SEGMENT_BYTES: Final = ConfigDef(
    "log.segment.bytes", INT, 1_073_741_824, Range(1_048_576),
    "Size at which a new segment begins.", update_mode=CLUSTER_WIDE)
LOG_ROLL_MS: Final = ConfigDef(
    "log.roll.ms", LONG, None, None,
    "Age at which a new segment begins; overrides log.roll.hours.", update_mode=CLUSTER_WIDE)
LOG_ROLL_HOURS: Final = ConfigDef(
    "log.roll.hours", INT, 168, Range(1),
    "Age in hours at which a new segment begins.")
LOG_ROLL_JITTER_MS: Final = ConfigDef(
    "log.roll.jitter.ms", LONG, None, None,
    "Largest random time subtracted from log.roll.ms, so that segments do not all roll at once.",
    update_mode=CLUSTER_WIDE)
LOG_ROLL_JITTER_HOURS: Final = ConfigDef(
    "log.roll.jitter.hours", INT, 0, Range(0),
    "Largest random number of hours subtracted from log.roll.hours.")
LOG_RETENTION_MS: Final = ConfigDef(
    "log.retention.ms", LONG, None, None,
    "Age at which records may be deleted; -1 keeps them. Overrides log.retention.minutes, .hours.",
    update_mode=CLUSTER_WIDE)
LOG_RETENTION_MINUTES: Final = ConfigDef(
    "log.retention.minutes", INT, None, None,
    "Age in minutes at which records may be deleted; overrides log.retention.hours.")
LOG_RETENTION_HOURS: Final = ConfigDef(
    "log.retention.hours", INT, 168, None,
    "Age in hours at which records may be deleted; -1 keeps them.")
LOG_RETENTION_BYTES: Final = ConfigDef(
    "log.retention.bytes", LONG, -1, None,
    "Size of a partition above which its oldest segments are deleted; -1 means no limit.", update_mode=CLUSTER_WIDE)
LOG_RETENTION_CHECK_INTERVAL_MS: Final = ConfigDef(
    "log.retention.check.interval.ms", LONG, 300_000, Range(1),
    "How often the broker looks for segments to delete.")
LOG_CLEANUP_POLICY: Final = ConfigDef(
    "log.cleanup.policy", LIST, ("delete",), OneOf(("compact", "delete")),
    "What to do with old segments: delete, compact or both; empty keeps everything.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_BACKOFF_MS: Final = ConfigDef(
    "log.cleaner.backoff.ms", LONG, 15_000, Range(0),
    "How long the cleaner pauses when no log is dirty enough.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_DELETE_RETENTION_MS: Final = ConfigDef(
    "log.cleaner.delete.retention.ms", LONG, 86_400_000, Range(0),
    "How long a tombstone stays once the log around it is compacted.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_ENABLE: Final = ConfigDef(
    "log.cleaner.enable", BOOLEAN, True, None,
    "Whether logs are compacted at all.")
LOG_CLEANER_MIN_CLEANABLE_RATIO: Final = ConfigDef(
    "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, Range(0, 1),
    "Share of a log that must be dirty before it is compacted.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_MIN_COMPACTION_LAG_MS: Final = ConfigDef(
    "log.cleaner.min.compaction.lag.ms", LONG, 0, Range(0),
    "Age a record must reach before it may be compacted away.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_MAX_COMPACTION_LAG_MS: Final = ConfigDef(
    "log.cleaner.max.compaction.lag.ms", LONG, INT64_MAX, Range(1),
    "Age at which a record must be compacted, however small the dirty share is.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_THREADS: Final = ConfigDef(
    "log.cleaner.threads", INT, 1, Range(0),
    "How many logs are compacted at a time: one, whatever the value; 0 means none.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND: Final = ConfigDef(
    "log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, None,
    "Maximum bytes per second that the cleaner reads and writes.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = ConfigDef(
    "log.cleaner.dedupe.buffer.size", LONG, 134_217_728, None,
    "Maximum memory of the cleaner's map of keys to their last offset.", update_mode=CLUSTER_WIDE)
LOG_CLEANER_IO_BUFFER_SIZE: Final = ConfigDef(
    "log.cleaner.io.buffer.size", INT, 524_288, Range(0),
    "Memory of the cleaner for reading and writing.", update_mode=CLUSTER_WIDE)
LOG_INDEX_SIZE_MAX_BYTES: Final = ConfigDef(
    "log.index.size.max.bytes", INT, 10_485_760, Range(4),
    "Largest size of an offset or time index.", update_mode=CLUSTER_WIDE)
LOG_INDEX_INTERVAL_BYTES: Final = ConfigDef(
    "log.index.interval.bytes", INT, 4096, Range(0),
    "Bytes of records between two index entries.", update_mode=CLUSTER_WIDE)
LOG_FLUSH_INTERVAL_MESSAGES: Final = ConfigDef(
    "log.flush.interval.messages", LONG, INT64_MAX, Range(1),
    "Records after which a partition is forced to disk.", update_mode=CLUSTER_WIDE)
LOG_FLUSH_INTERVAL_MS: Final = ConfigDef(
    "log.flush.interval.ms", LONG, None, None,
    "Longest time records wait before they are forced to disk.", update_mode=CLUSTER_WIDE)
LOG_FLUSH_SCHEDULER_INTERVAL_MS: Final = ConfigDef(
    "log.flush.scheduler.interval.ms", LONG, INT64_MAX, None,
    "How often the broker looks for partitions to flush.")
LOG_SEGMENT_DELETE_DELAY_MS: Final = ConfigDef(
    "log.segment.delete.delay.ms", LONG, 60_000, Range(0),
    "How long a deleted segment's file stays on disk.", update_mode=CLUSTER_WIDE)
LOG_MESSAGE_TIMESTAMP_TYPE: Final = ConfigDef(
    "log.message.timestamp.type", STRING, "CreateTime", OneOf(("CreateTime", "LogAppendTime")),
    "Whether the timestamp of a record is the producer's or the broker's.", update_mode=CLUSTER_WIDE)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = ConfigDef(
    "log.message.timestamp.before.max.ms", LONG, INT64_MAX, Range(0),
    "How far a record's timestamp may be behind the broker's clock.", update_mode=CLUSTER_WIDE)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = ConfigDef(
    "log.message.timestamp.after.max.ms", LONG, 3_600_000, Range(0),
    "How far a record's timestamp may be ahead of the broker's clock.", update_mode=CLUSTER_WIDE)

# Replicas and producers
MESSAGE_MAX_BYTES: Final = ConfigDef(
    "message.max.bytes", INT, 1_048_588, Range(0),
    "Largest batch of records accepted.", update_mode=CLUSTER_WIDE)
MIN_INSYNC_REPLICAS: Final = ConfigDef(
    "min.insync.replicas", INT, 1, Range(1),
    "In-sync replicas that a write with acks=all needs.", update_mode=CLUSTER_WIDE)
COMPRESSION_TYPE: Final = ConfigDef(
    "compression.type", STRING, "producer", OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    "How batches are stored: as the producer sent them, or in this codec.", update_mode=CLUSTER_WIDE)
COMPRESSION_GZIP_LEVEL: Final = ConfigDef(
    "compression.gzip.level", INT, -1, Range(1, 9, besides=-1),
    "Level of gzip, if the broker compresses; -1 is gzip's own default.", update_mode=CLUSTER_WIDE)
COMPRESSION_LZ4_LEVEL: Final = ConfigDef(
    "compression.lz4.level", INT, 9, Range(1, 17),
    "Level of lz4, if the broker compresses.", update_mode=CLUSTER_WIDE)
COMPRESSION_ZSTD_LEVEL: Final = ConfigDef(
    "compression.zstd.level", INT, 3, Range(-131_072, 22),
    "Level of zstd, if the broker compresses.", update_mode=CLUSTER_WIDE)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = ConfigDef(
    "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None,
    "How often high watermarks are written to their checkpoint.")
PRODUCER_ID_EXPIRATION_MS: Final = ConfigDef(
    "producer.id.expiration.ms", INT, 86_400_000, Range(1),
    "Idle time after which a producer's sequence numbers are forgotten.", update_mode=CLUSTER_WIDE)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS: Final = ConfigDef(
    "producer.id.expiration.check.interval.ms", INT, 600_000, Range(1),
    "How often the broker looks for idle producers.", internal=True)
