"""The effective values of a topic that overrides some keys of brokers; `settings.topics` has the keys.

The packages `log` and `replica` define the effect of a key. Callers resolve once per change, not per request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from moldau.base.broker_configs import BROKER_CONFIGS, broker_synonyms, broker_value
from moldau.base.config_def import (
    BrokerLayers,
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    rows_of,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings import topics
from moldau.base.view_configs import VIEW_CONFIGS

T = TypeVar("T")

TOPIC_CONFIGS: Final[Mapping[str, ConfigDef]] = {row.name: row for row in (*rows_of(topics), *VIEW_CONFIGS)}


def check_topic_configs(overrides: Mapping[str, str], broker_configs: BrokerLayers) -> None:
    """Raise KafkaError INVALID_CONFIG for overrides that Kafka refuses, with Kafka's message."""
    for name in overrides:
        if name not in TOPIC_CONFIGS:
            raise _invalid(f"Unknown topic config name: {name}")
    values = topic_config_values(overrides, broker_configs)
    min_lag, max_lag = topics.MIN_COMPACTION_LAG_MS, topics.MAX_COMPACTION_LAG_MS
    min_lag_ms, max_lag_ms = values[min_lag.name], values[max_lag.name]
    assert isinstance(min_lag_ms, int)
    assert isinstance(max_lag_ms, int)
    if min_lag_ms > max_lag_ms:
        raise _invalid(f"conflict topic config setting {min_lag} ({min_lag_ms}) > {max_lag} ({max_lag_ms})")
    if values[topics.REMOTE_STORAGE_ENABLE.name]:
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def topic_config_values(overrides: Mapping[str, str], broker_configs: BrokerLayers) -> dict[str, ConfigValue]:
    """Return every topic key with its parsed value, for the log and the replicas."""
    values = {name: _value(definition, overrides, broker_configs) for name, definition in TOPIC_CONFIGS.items()}
    for_tests = values[topics.INTERNAL_SEGMENT_BYTES.name]
    if for_tests is not None:
        values[topics.SEGMENT_BYTES.name] = for_tests
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
        value = broker_value(BROKER_CONFIGS[synonym.name], broker_configs)
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
