"""The configs of a client metrics resource (KIP-714): which metrics clients send, how often, and which clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moldau.base.config_def import (
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    UpdateMode,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.pattern import compile_pattern

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"
DEFAULT_INTERVAL_MS: Final = 300_000
INTERVAL_RANGE_MS: Final = (100, 3_600_000)
SELECTORS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What the patterns of `match` are compared with."""

CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigDef]] = {
    row.name: row
    for row in (
        ConfigDef(
            METRICS,
            ConfigType.LIST,
            (),
            documentation="Prefixes of the names of metrics that clients send; * stands for all.",
            update_mode=UpdateMode.CLUSTER_WIDE,
        ),
        ConfigDef(
            INTERVAL_MS,
            ConfigType.INT,
            DEFAULT_INTERVAL_MS,
            documentation="How often clients send them, in milliseconds.",
            update_mode=UpdateMode.CLUSTER_WIDE,
        ),
        ConfigDef(
            MATCH,
            ConfigType.LIST,
            (),
            documentation=f"Which clients send them: NAME=REGEX, the name one of {', '.join(SELECTORS)}. Empty: all.",
            update_mode=UpdateMode.CLUSTER_WIDE,
        ),
    )
}


def check_client_metrics_configs(resource: str, configs: Mapping[str, str]) -> None:
    """Raise KafkaError for configs that Kafka refuses, with Kafka's message."""
    if not resource:
        raise _invalid_request("Subscription name can't be empty")
    for name in configs:
        if name not in CLIENT_METRICS_CONFIGS:
            raise _invalid_request(f"Unknown client metrics configuration: {name}")
    values = client_metrics_values(configs)
    interval_ms, (low, high) = values[INTERVAL_MS], INTERVAL_RANGE_MS
    assert isinstance(interval_ms, int)
    if not low <= interval_ms <= high:
        raise _invalid_request(
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between {low} and {high} (1 hour)"
        )
    match_patterns(values[MATCH])


def client_metrics_values(configs: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Return every config with its parsed value."""
    return {
        name: definition.parse(configs[name]) if name in configs else definition.default
        for name, definition in CLIENT_METRICS_CONFIGS.items()
    }


def match_patterns(items: ConfigValue) -> dict[str, Any]:
    """Return the compiled patterns of `match` by selector. Raise KafkaError INVALID_CONFIG for an illegal one."""
    assert isinstance(items, tuple)
    patterns = {}
    for item in items:
        selector, equals, text = (part.strip() for part in item.partition("="))
        if not equals or "=" in text or not text or selector not in SELECTORS:
            raise _illegal_pattern(item)
        try:
            patterns[selector] = compile_pattern(text)
        except KafkaError as error:
            raise _illegal_pattern(item, error.message) from error
    return patterns


def effective_client_metrics_configs(configs: Mapping[str, str]) -> tuple[ConfigEntry, ...]:
    """Return every config with its value and its source, for DescribeConfigs."""
    return tuple(_entry(definition, configs) for definition in CLIENT_METRICS_CONFIGS.values())


def _entry(definition: ConfigDef, configs: Mapping[str, str]) -> ConfigEntry:
    if definition.name not in configs:
        return ConfigEntry(definition, definition.default_text, ConfigSource.DEFAULT_CONFIG, ())
    value, source = configs[definition.name], ConfigSource.CLIENT_METRICS_CONFIG
    return ConfigEntry(definition, value, source, (ConfigSynonym(definition.name, value, source),))


def _illegal_pattern(item: str, reason: str | None = None) -> KafkaError:
    detail = f": {reason}" if reason else ""
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}{detail}")


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
