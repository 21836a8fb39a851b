"""The topic settings that a log uses: Kafka's names with the units last, already typed.

Nothing is validated here: properties were validated before they arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from moldau.base.ids import TopicPartition
from moldau.base.limits import DECOMPRESSED_BYTES_MAX
from moldau.wire.compression import Compression
from moldau.wire.crc import crc32c

LONG_MAX: Final = 2**63 - 1
DAY_MS: Final = 24 * 3600 * 1000
NO_LIMIT: Final = -1

LOG_APPEND_TIME: Final = "LogAppendTime"
CREATE_TIME: Final = "CreateTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = NO_LIMIT
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    max_message_bytes: int = 1048588
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = DAY_MS
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    file_delete_delay_ms: int = 60 * 1000
    preallocate: bool = False
    """Accepted without effect: files grow as they are written."""
    moldau_max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX
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
        values: dict[str, int | float | bool | str | frozenset[str]] = {}
        for field in fields(cls):
            text = properties.get(_PROPERTY_NAMES[field.name])
            if text is not None:
                values[field.name] = _typed(text, field.default)
        return cls(**values)  # type: ignore[arg-type]  # each value has its field's own type, see _typed


def _property_name(field_name: str) -> str:
    """`message_timestamp_before_max_ms` -> `message.timestamp.before.max.ms`: all of Kafka's names are like this."""
    return field_name.replace("_", ".")


_PROPERTY_NAMES: Final = {field.name: _property_name(field.name) for field in fields(LogConfig)}


def _typed(text: str, default: object) -> int | float | bool | str | frozenset[str]:
    if isinstance(default, bool):
        return text.strip().lower() == "true"
    if isinstance(default, int):
        return int(text)
    if isinstance(default, float):
        return float(text)
    if isinstance(default, frozenset):
        return frozenset(part.strip() for part in text.split(",") if part.strip())
    return text
