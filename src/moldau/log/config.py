"""The topic settings that a log uses: Kafka's names with the units last, already typed.

Nothing is validated here: properties were validated before they arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moldau.base.ids import TopicPartition
from moldau.base.settings import own, topics
from moldau.base.settings.fields import read_settings, setting
from moldau.wire.compression import Compression
from moldau.wire.crc import crc32c

NO_LIMIT: Final = -1

LOG_APPEND_TIME: Final = "LogAppendTime"
CREATE_TIME: Final = "CreateTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = setting(topics.SEGMENT_BYTES)
    segment_ms: int = setting(topics.SEGMENT_MS)
    segment_jitter_ms: int = setting(topics.SEGMENT_JITTER_MS)
    segment_index_bytes: int = setting(topics.SEGMENT_INDEX_BYTES)
    index_interval_bytes: int = setting(topics.INDEX_INTERVAL_BYTES)
    retention_ms: int = setting(topics.RETENTION_MS)
    retention_bytes: int = setting(topics.RETENTION_BYTES)
    flush_messages: int = setting(topics.FLUSH_MESSAGES)
    flush_ms: int = setting(topics.FLUSH_MS)
    max_message_bytes: int = setting(topics.MAX_MESSAGE_BYTES)
    message_timestamp_type: str = setting(topics.MESSAGE_TIMESTAMP_TYPE)
    message_timestamp_before_max_ms: int = setting(topics.MESSAGE_TIMESTAMP_BEFORE_MAX_MS)
    message_timestamp_after_max_ms: int = setting(topics.MESSAGE_TIMESTAMP_AFTER_MAX_MS)
    cleanup_policy: frozenset[str] = setting(topics.CLEANUP_POLICY, frozenset)
    min_cleanable_dirty_ratio: float = setting(topics.MIN_CLEANABLE_DIRTY_RATIO)
    min_compaction_lag_ms: int = setting(topics.MIN_COMPACTION_LAG_MS)
    max_compaction_lag_ms: int = setting(topics.MAX_COMPACTION_LAG_MS)
    delete_retention_ms: int = setting(topics.DELETE_RETENTION_MS)
    compression_type: str = setting(topics.COMPRESSION_TYPE)
    compression_gzip_level: int = setting(topics.COMPRESSION_GZIP_LEVEL)
    compression_lz4_level: int = setting(topics.COMPRESSION_LZ4_LEVEL)
    compression_zstd_level: int = setting(topics.COMPRESSION_ZSTD_LEVEL)
    file_delete_delay_ms: int = setting(topics.FILE_DELETE_DELAY_MS)
    preallocate: bool = setting(topics.PREALLOCATE)
    """Accepted without effect: files grow as they are written."""
    moldau_max_decompressed_bytes: int = setting(own.MOLDAU_MAX_DECOMPRESSED_BYTES)
    """A setting of the broker, not of the topic."""

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def target_compression(self) -> Compression | None:
        """The codec in which records are stored; None to store them as the producer sent them."""
        return None if self.compression_type == "producer" else Compression.from_name(self.compression_type)

    def compression_level(self, codec: Compression) -> int | None:
        """None if the codec has no levels, or if the setting asks for the codec's default."""
        match codec:
            case Compression.GZIP:
                return None if self.compression_gzip_level == -1 else self.compression_gzip_level
            case Compression.LZ4:
                return self.compression_lz4_level
            case Compression.ZSTD:
                return self.compression_zstd_level
            case _:
                return None

    def roll_jitter_ms(self, partition: TopicPartition, base_offset: int) -> int:
        """Spread the rolls of many partitions over time. It is computed from the name, so that a restart keeps it."""
        if self.segment_jitter_ms <= 0:
            return 0
        return crc32c(f"{partition} {base_offset}".encode()) % min(self.segment_jitter_ms, self.segment_ms)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """Read Kafka's dotted names. A missing one has its default; names that a log does not use are ignored."""
        return read_settings(
            cls, lambda row: row.converted(properties[row.name]) if row.name in properties else row.default
        )
