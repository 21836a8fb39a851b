"""The topic keys, and the effective values of a topic that overrides some of them.

Names, types, defaults, limits and broker keys to fall back to are those of Apache Kafka 4.3. The packages `log` and
`replica` define the effect of a key. Callers resolve once per change, not per request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from moldau.base.broker_configs import broker_synonyms, broker_value
from moldau.base.config_def import (
    LONG_MAX,
    BrokerLayers,
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    OneOf,
    Range,
    Synonym,
    UpdateMode,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.view_configs import VIEW_CONFIGS

T = TypeVar("T")
BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


THROTTLED_REPLICA: Final = re.compile("([0-9]{1,10}):([0-9]{1,10})")
"""The partition and the broker."""


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*`, or a list of partition:broker."""

    key: str

    def complaint(self, value: ConfigValue) -> str | None:
        assert isinstance(value, tuple), "throttled replicas are a list"
        if value == ("*",) or all(THROTTLED_REPLICA.fullmatch(item) for item in value):
            return None
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        return f"{self.key} must be the literal '*' or a list of replicas in the following format: {form}"


def _broker(broker_key: str) -> tuple[Synonym, ...]:
    """The broker key to which a topic key falls back."""
    return (Synonym(broker_key),)


_ROLL: Final = (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS))
_JITTER: Final = (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS))
_FLUSH: Final = (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms"))
_RETENTION: Final = (
    Synonym("log.retention.ms"),
    Synonym("log.retention.minutes", MINUTE_MS),
    Synonym("log.retention.hours", HOUR_MS),
)
_CODECS: Final = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
_LEADER_THROTTLE: Final = "leader.replication.throttled.replicas"
_FOLLOWER_THROTTLE: Final = "follower.replication.throttled.replicas"

_ROWS: Final[tuple[ConfigDef, ...]] = (
    ConfigDef("segment.bytes", INT, 1_073_741_824, Range(1_048_576), synonyms=_broker("log.segment.bytes")),
    ConfigDef("segment.ms", LONG, 604_800_000, Range(1), synonyms=_ROLL),
    ConfigDef("segment.jitter.ms", LONG, 0, Range(0), synonyms=_JITTER),
    ConfigDef("segment.index.bytes", INT, 10_485_760, Range(4), synonyms=_broker("log.index.size.max.bytes")),
    ConfigDef("flush.messages", LONG, LONG_MAX, Range(1), synonyms=_broker("log.flush.interval.messages")),
    ConfigDef("flush.ms", LONG, LONG_MAX, Range(0), synonyms=_FLUSH),
    ConfigDef("retention.bytes", LONG, -1, synonyms=_broker("log.retention.bytes")),
    ConfigDef("retention.ms", LONG, 604_800_000, Range(-1), synonyms=_RETENTION),
    ConfigDef("max.message.bytes", INT, 1_048_588, Range(0), synonyms=_broker("message.max.bytes")),
    ConfigDef("index.interval.bytes", INT, 4096, Range(0), synonyms=_broker("log.index.interval.bytes")),
    ConfigDef("delete.retention.ms", LONG, 86_400_000, Range(0), synonyms=_broker("log.cleaner.delete.retention.ms")),
    ConfigDef("min.compaction.lag.ms", LONG, 0, Range(0), synonyms=_broker("log.cleaner.min.compaction.lag.ms")),
    ConfigDef("max.compaction.lag.ms", LONG, LONG_MAX, Range(1), synonyms=_broker("log.cleaner.max.compaction.lag.ms")),
    ConfigDef("file.delete.delay.ms", LONG, 60_000, Range(0), synonyms=_broker("log.segment.delete.delay.ms")),
    ConfigDef(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, Range(0, 1), synonyms=_broker("log.cleaner.min.cleanable.ratio")
    ),
    ConfigDef(
        "cleanup.policy", LIST, ("delete",), OneOf(("compact", "delete")), synonyms=_broker("log.cleanup.policy")
    ),
    ConfigDef("unclean.leader.election.enable", BOOLEAN, False, synonyms=_broker("unclean.leader.election.enable")),
    ConfigDef("min.insync.replicas", INT, 1, Range(1), synonyms=_broker("min.insync.replicas")),
    ConfigDef("compression.type", STRING, "producer", _CODECS, synonyms=_broker("compression.type")),
    ConfigDef("compression.gzip.level", INT, -1, Range(1, 9, besides=-1), synonyms=_broker("compression.gzip.level")),
    ConfigDef("compression.lz4.level", INT, 9, Range(1, 17), synonyms=_broker("compression.lz4.level")),
    ConfigDef("compression.zstd.level", INT, 3, Range(-131_072, 22), synonyms=_broker("compression.zstd.level")),
    ConfigDef("preallocate", BOOLEAN, False, synonyms=_broker("log.preallocate")),
    ConfigDef(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        synonyms=_broker("log.message.timestamp.type"),
    ),
    ConfigDef(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        Range(0),
        synonyms=_broker("log.message.timestamp.before.max.ms"),
    ),
    ConfigDef(
        "message.timestamp.after.max.ms",
        LONG,
        3_600_000,
        Range(0),
        synonyms=_broker("log.message.timestamp.after.max.ms"),
    ),
    ConfigDef(_LEADER_THROTTLE, LIST, (), ThrottledReplicas(_LEADER_THROTTLE)),
    ConfigDef(_FOLLOWER_THROTTLE, LIST, (), ThrottledReplicas(_FOLLOWER_THROTTLE)),
    ConfigDef("remote.storage.enable", BOOLEAN, False),
    ConfigDef("local.retention.ms", LONG, -2, Range(-2), synonyms=_broker("log.local.retention.ms")),
    ConfigDef("local.retention.bytes", LONG, -2, Range(-2), synonyms=_broker("log.local.retention.bytes")),
    ConfigDef("remote.log.copy.disable", BOOLEAN, False),
    ConfigDef("remote.log.delete.on.disable", BOOLEAN, False),
    ConfigDef("internal.segment.bytes", INT, None, internal=True),
)

_DOCUMENTATION: Final[Mapping[str, str]] = {
    "segment.bytes": "Size at which a new segment begins.",
    "segment.ms": "Age at which a new segment begins even if the last one is not full.",
    "segment.jitter.ms": "Largest random time subtracted from segment.ms, so that segments do not all roll at once.",
    "segment.index.bytes": "Largest size of an offset or time index.",
    "flush.messages": "Records after which the log is forced to disk.",
    "flush.ms": "Longest time records wait before they are forced to disk.",
    "retention.bytes": "Size of a partition above which its oldest segments are deleted; -1 means no limit.",
    "retention.ms": "Age at which records may be deleted; -1 keeps them for ever.",
    "max.message.bytes": "Largest batch of records accepted.",
    "index.interval.bytes": "Bytes of records between two index entries.",
    "delete.retention.ms": "How long a tombstone stays once the log around it is compacted.",
    "min.compaction.lag.ms": "Age a record must reach before it may be compacted away.",
    "max.compaction.lag.ms": "Age at which a record must be compacted, however small the dirty share is.",
    "file.delete.delay.ms": "How long a deleted segment's file stays on disk.",
    "min.cleanable.dirty.ratio": "Share of the log that must be dirty before it is compacted.",
    "cleanup.policy": "What to do with old segments: delete, compact or both; empty keeps everything.",
    "unclean.leader.election.enable": "Whether a replica that is not in sync may lead when no other is left.",
    "min.insync.replicas": "In-sync replicas that a write with acks=all needs.",
    "compression.type": "How batches are stored: as the producer sent them, or in this codec.",
    "compression.gzip.level": "Level of gzip, if the broker compresses; -1 is gzip's own default.",
    "compression.lz4.level": "Level of lz4, if the broker compresses.",
    "compression.zstd.level": "Level of zstd, if the broker compresses.",
    "preallocate": "Whether a new segment's file gets its full size at once.",
    "message.timestamp.type": "Whether the timestamp of a record is the producer's or the broker's.",
    "message.timestamp.before.max.ms": "How far a record's timestamp may be behind the broker's clock.",
    "message.timestamp.after.max.ms": "How far a record's timestamp may be ahead of the broker's clock.",
    _LEADER_THROTTLE: "Replicas whose sending is throttled on the leader's side.",
    _FOLLOWER_THROTTLE: "Replicas whose fetching is throttled on the follower's side.",
    "remote.storage.enable": "Whether closed segments are copied to remote storage; not supported.",
    "local.retention.ms": "Age at which segments in remote storage are deleted locally; -2 is retention.ms.",
    "local.retention.bytes": "Local size above which segments in remote storage are deleted; -2 is retention.bytes.",
    "remote.log.copy.disable": "Stop copying segments to remote storage.",
    "remote.log.delete.on.disable": "Delete the remote segments when remote storage is switched off.",
    "internal.segment.bytes": "Overrides segment.bytes with a size below its minimum, for tests.",
}

TOPIC_CONFIGS: Final[Mapping[str, ConfigDef]] = {
    row.name: replace(row, update_mode=UpdateMode.CLUSTER_WIDE, documentation=_DOCUMENTATION[row.name]) for row in _ROWS
} | {row.name: row for row in VIEW_CONFIGS}


def check_topic_configs(overrides: Mapping[str, str], broker_configs: BrokerLayers) -> None:
    """Raise KafkaError INVALID_CONFIG for overrides that Kafka refuses, with Kafka's message."""
    for name in overrides:
        if name not in TOPIC_CONFIGS:
            raise _invalid(f"Unknown topic config name: {name}")
    values = topic_config_values(overrides, broker_configs)
    min_lag_ms, max_lag_ms = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(min_lag_ms, int)
    assert isinstance(max_lag_ms, int)
    if min_lag_ms > max_lag_ms:
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({min_lag_ms}) > max.compaction.lag.ms ({max_lag_ms})"
        )
    if values["remote.storage.enable"]:
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def topic_config_values(overrides: Mapping[str, str], broker_configs: BrokerLayers) -> dict[str, ConfigValue]:
    """Return every topic key with its parsed value, for the log and the replicas."""
    values = {name: _value(definition, overrides, broker_configs) for name, definition in TOPIC_CONFIGS.items()}
    if values["internal.segment.bytes"] is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    return values


def topic_config_texts(overrides: Mapping[str, str], broker_configs: BrokerLayers) -> dict[str, str]:
    """Return `topic_config_values` as Kafka writes them, without keys that have no value."""
    values = topic_config_values(overrides, broker_configs)
    return {name: text for name, value in values.items() if (text := TOPIC_CONFIGS[name].text(value)) is not None}


def effective_topic_configs(
    overrides: Mapping[str, str], broker_configs: BrokerLayers, names: Collection[str] = ()
) -> tuple[ConfigEntry, ...]:
    """Return topic keys with their effective values, sources and synonyms, for DescribeConfigs: these, or all."""
    return tuple(
        _entry(definition, overrides, broker_configs)
        for name, definition in TOPIC_CONFIGS.items()
        if (name in overrides or not definition.internal) and (not names or name in names)
    )


def memoized_by_overrides(compute: Callable[[Mapping[str, str]], T]) -> Callable[[Mapping[str, str]], T]:
    """Return `compute`, computed once for equal overrides. Most topics of one request have the same, or none, and all
    configs of a topic take half a millisecond. The results live as long as the returned function."""
    known: dict[frozenset[tuple[str, str]], T] = {}

    def look_up(overrides: Mapping[str, str]) -> T:
        key = frozenset(overrides.items())
        if key not in known:
            known[key] = compute(overrides)
        return known[key]

    return look_up


def _value(definition: ConfigDef, overrides: Mapping[str, str], broker_configs: BrokerLayers) -> ConfigValue:
    if definition.name in overrides:
        return definition.parse(overrides[definition.name])
    for synonym in definition.synonyms:
        value = broker_value(synonym.name, broker_configs)
        if value is not None:
            return synonym.convert(value)
    return definition.default


def _entry(definition: ConfigDef, overrides: Mapping[str, str], broker_configs: BrokerLayers) -> ConfigEntry:
    value = definition.text(_value(definition, overrides, broker_configs))
    # The first synonym stands for all: `broker_synonyms` lists the others, as those in minutes and hours, after it.
    synonyms = broker_synonyms(definition.synonyms[0].name, broker_configs) if definition.synonyms else ()
    if definition.name in overrides:
        synonyms = (ConfigSynonym(definition.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(definition, value, source, synonyms)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
