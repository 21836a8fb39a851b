"""The configs of a group: what holds for its members instead of the broker's settings, within the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.base.broker_configs import broker_integer
from moldau.base.config_def import (
    BrokerLayers,
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Range,
    UpdateMode,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings import groups as keys


class _Bounded(NamedTuple):
    definition: ConfigDef
    broker: ConfigDef
    """What holds without it."""
    least: ConfigDef
    most: ConfigDef


def _bounded(broker: ConfigDef, least: ConfigDef, most: ConfigDef) -> _Bounded:
    name = broker.name.removeprefix("group.")
    mode = UpdateMode.CLUSTER_WIDE
    documentation = broker.documentation
    row = ConfigDef(name, ConfigType.INT, broker.default, Range(1), documentation=documentation, update_mode=mode)
    return _Bounded(row, broker, least, most)


SESSION_TIMEOUT: Final = _bounded(
    keys.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    keys.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    keys.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
)
HEARTBEAT_INTERVAL: Final = _bounded(
    keys.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    keys.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    keys.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
)
_BOUNDED: Final = (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
GROUP_CONFIGS: Final[Mapping[str, ConfigDef]] = {each.definition.name: each.definition for each in _BOUNDED}


def check_group_configs(group: str, configs: Mapping[str, str], layers: BrokerLayers) -> None:
    """Raise KafkaError for configs that Kafka refuses, with Kafka's message."""
    if not group:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    for name in configs:
        if name not in GROUP_CONFIGS:
            raise _invalid(f"Unknown group config name: {name}")
    values = group_values(configs, layers)
    for row in _BOUNDED:
        name = row.definition.name
        if values[name] < broker_integer(row.least, layers):
            raise _invalid(f"{name} must be greater than or equal to {row.least.name}")
        if values[name] > broker_integer(row.most, layers):
            raise _invalid(f"{name} must be less than or equal to {row.most.name}")
    session, heartbeat = SESSION_TIMEOUT.definition.name, HEARTBEAT_INTERVAL.definition.name
    if values[session] <= values[heartbeat]:
        raise _invalid(f"{session} must be greater than {heartbeat}")


def group_values(configs: Mapping[str, str], layers: BrokerLayers) -> dict[str, int]:
    """Return every config of a group with the value that holds for it."""
    return {
        each.definition.name: _integer(each.definition, configs)
        if each.definition.name in configs
        else broker_integer(each.broker, layers)
        for each in _BOUNDED
    }


def group_integer(row: _Bounded, configs: Mapping[str, str], otherwise: int) -> int:
    """Return what holds for a group with these configs; what holds for all others without one."""
    return _integer(row.definition, configs) if row.definition.name in configs else otherwise


def effective_group_configs(configs: Mapping[str, str], layers: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """Return every config with its value and its source, for DescribeConfigs."""
    values = group_values(configs, layers)
    return tuple(_entry(each.definition, configs, values) for each in _BOUNDED)


def _entry(definition: ConfigDef, configs: Mapping[str, str], values: Mapping[str, int]) -> ConfigEntry:
    if definition.name not in configs:
        return ConfigEntry(definition, str(values[definition.name]), ConfigSource.DEFAULT_CONFIG, ())
    value, source = configs[definition.name], ConfigSource.GROUP_CONFIG
    return ConfigEntry(definition, value, source, (ConfigSynonym(definition.name, value, source),))


def _integer(definition: ConfigDef, configs: Mapping[str, str]) -> int:
    value = definition.parse(configs[definition.name])
    assert isinstance(value, int)
    return value


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
