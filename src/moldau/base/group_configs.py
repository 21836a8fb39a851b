"""The configs of a group: what holds for its members instead of the broker's settings, within the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.broker_configs import broker_integer, broker_synonyms
from moldau.base.config_def import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    STRING,
    BrokerLayers,
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    OneOf,
    Range,
    Synonym,
)
from moldau.base.durations import duration_ns
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings import groups as keys

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION_PREFIX: Final = "by_duration:"
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"


class BoundedConfig(NamedTuple):
    """A number that a group may set within bounds that its broker sets."""

    definition: ConfigDef
    broker: ConfigDef
    """What holds without it."""
    least: ConfigDef
    most: ConfigDef


def _bounded(broker: ConfigDef, least: ConfigDef, most: ConfigDef) -> BoundedConfig:
    name = broker.name.removeprefix("group.")
    assert isinstance(broker.validator, Range), f"{broker} has no range"
    row = ConfigDef(
        name,
        INT,
        broker.default,
        Range(broker.validator.low),
        broker.documentation,
        synonyms=(Synonym(broker.name),),
        update_mode=CLUSTER_WIDE,
    )
    return BoundedConfig(row, broker, least, most)


@dataclass(frozen=True, slots=True)
class ValidOffsetReset:
    """`earliest`, `latest` or `by_duration:` with a duration that is not negative."""

    name: str

    def complaint(self, value: ConfigValue) -> str | None:
        text = str(value)
        if text in (EARLIEST, LATEST):
            return None
        if text.startswith(BY_DURATION_PREFIX):
            try:
                if duration_ns(text.removeprefix(BY_DURATION_PREFIX)) >= 0:
                    return None
            except ValueError:
                pass  # the message is the same
        return (
            f"Invalid value `{text[:100]}` for configuration {self.name}. The value must be either 'earliest', 'latest'"
            " or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )


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
ASSIGNMENT_INTERVAL: Final = _bounded(
    keys.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    keys.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    keys.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
)
SHARE_SESSION_TIMEOUT: Final = _bounded(
    keys.GROUP_SHARE_SESSION_TIMEOUT_MS,
    keys.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    keys.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
)
SHARE_HEARTBEAT_INTERVAL: Final = _bounded(
    keys.GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    keys.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    keys.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
)
SHARE_ASSIGNMENT_INTERVAL: Final = _bounded(
    keys.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
    keys.GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
    keys.GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
)
SHARE_RECORD_LOCK_DURATION: Final = _bounded(
    keys.GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    keys.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    keys.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
)
SHARE_DELIVERY_COUNT_LIMIT: Final = _bounded(
    keys.GROUP_SHARE_DELIVERY_COUNT_LIMIT,
    keys.GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
    keys.GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
)
SHARE_PARTITION_MAX_RECORD_LOCKS: Final = _bounded(
    keys.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    keys.GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
    keys.GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
)
_BOUNDED: Final = (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    SHARE_RECORD_LOCK_DURATION,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_PARTITION_MAX_RECORD_LOCKS,
    SHARE_ASSIGNMENT_INTERVAL,
)
"""In the order in which Kafka checks them."""
_CHECKED_IF_SET: Final = (ASSIGNMENT_INTERVAL, SHARE_ASSIGNMENT_INTERVAL)
"""The bounds of the others are checked for the broker's values too."""

_OFFSET_RESET_NAME: Final = "share.auto.offset.reset"
SHARE_AUTO_OFFSET_RESET: Final = ConfigDef(
    _OFFSET_RESET_NAME,
    STRING,
    LATEST,
    ValidOffsetReset(_OFFSET_RESET_NAME),
    "Where a share group begins to read a partition: earliest, latest, or by_duration:PnDTnHnMn.nS, so long ago.",
    update_mode=CLUSTER_WIDE,
)
SHARE_ISOLATION_LEVEL: Final = ConfigDef(
    "share.isolation.level",
    STRING,
    READ_UNCOMMITTED,
    OneOf((READ_COMMITTED, READ_UNCOMMITTED)),
    "Whether a share group gets only the records of committed transactions.",
    update_mode=CLUSTER_WIDE,
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE: Final = ConfigDef(
    "share.renew.acknowledge.enable",
    BOOLEAN,
    True,
    documentation="Whether members of a share group may renew the locks of records that they have acquired.",
    update_mode=CLUSTER_WIDE,
)
DEAD_LETTER_TOPIC: Final = ConfigDef(
    "errors.deadletterqueue.topic.name",
    STRING,
    "",
    documentation="The topic for records that a share group has given up (dead letters); empty for none.",
    update_mode=CLUSTER_WIDE,
)
DEAD_LETTER_COPY_RECORD_ENABLE: Final = ConfigDef(
    "errors.deadletterqueue.copy.record.enable",
    BOOLEAN,
    False,
    documentation="Whether a dead letter has the key and the value of its record, or only says where that is.",
    update_mode=CLUSTER_WIDE,
)
_UNBOUNDED: Final = (
    DEAD_LETTER_COPY_RECORD_ENABLE,
    DEAD_LETTER_TOPIC,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_ISOLATION_LEVEL,
    SHARE_RENEW_ACKNOWLEDGE_ENABLE,
)
GROUP_CONFIGS: Final[Mapping[str, ConfigDef]] = {
    row.name: row for row in (*(each.definition for each in _BOUNDED), *_UNBOUNDED)
}


def check_group_configs(group: str, configs: Mapping[str, str], layers: BrokerLayers) -> None:
    """Raise KafkaError for configs that Kafka refuses, with Kafka's message."""
    if not group:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    for name in configs:
        if name not in GROUP_CONFIGS:
            raise _invalid(f"Unknown group config name: {name}")
    values = {each: group_integer(each, configs, layers) for each in _BOUNDED}
    for unbounded in _UNBOUNDED:
        group_value(unbounded, configs)
    for row, value in values.items():
        name = row.definition.name
        if row not in _CHECKED_IF_SET or name in configs:
            if value < broker_integer(row.least, layers):
                raise _invalid(f"{name} must be greater than or equal to {row.least.name}")
            if value > broker_integer(row.most, layers):
                raise _invalid(f"{name} must be less than or equal to {row.most.name}")
    for session, heartbeat in (
        (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
        (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
    ):
        if values[session] <= values[heartbeat]:
            raise _invalid(f"{session.definition.name} must be greater than {heartbeat.definition.name}")


def group_integer(row: BoundedConfig, configs: Mapping[str, str], layers: BrokerLayers) -> int:
    """Return what is set for a group with these configs, or else for its broker."""
    name = row.definition.name
    return _integer(row.definition, configs[name]) if name in configs else broker_integer(row.broker, layers)


def group_integer_within_bounds(row: BoundedConfig, configs: Mapping[str, str], layers: BrokerLayers) -> int:
    """Return what holds for a group: its own config, as far as the broker's bounds allow it. These may have changed
    since it was set."""
    value = group_integer(row, configs, layers)
    if row.definition.name not in configs:
        return value
    return min(max(value, broker_integer(row.least, layers)), broker_integer(row.most, layers))


def group_value(row: ConfigDef, configs: Mapping[str, str]) -> ConfigValue:
    """Return the value of a config that no broker key is for."""
    return row.parse(configs[row.name]) if row.name in configs else row.default


def effective_group_configs(configs: Mapping[str, str], layers: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """Return every config with its value and its source, for DescribeConfigs."""
    bounded = tuple(_bounded_entry(each, configs, layers) for each in _BOUNDED)
    return (*bounded, *(_entry(row, row.default_text, configs, _default_synonyms(row)) for row in _UNBOUNDED))


def _bounded_entry(row: BoundedConfig, configs: Mapping[str, str], layers: BrokerLayers) -> ConfigEntry:
    inherited = row.broker.text(broker_integer(row.broker, layers))
    return _entry(row.definition, inherited, configs, broker_synonyms(row.broker.name, layers))


def _default_synonyms(row: ConfigDef) -> tuple[ConfigSynonym, ...]:
    return (ConfigSynonym(row.name, row.default_text, ConfigSource.DEFAULT_CONFIG),)


def _entry(
    row: ConfigDef, inherited: str | None, configs: Mapping[str, str], synonyms: tuple[ConfigSynonym, ...]
) -> ConfigEntry:
    if row.name not in configs:
        return ConfigEntry(row, inherited, synonyms[0].source, synonyms)
    value, source = configs[row.name], ConfigSource.GROUP_CONFIG
    return ConfigEntry(row, value, source, (ConfigSynonym(row.name, value, source), *synonyms))


def _integer(definition: ConfigDef, text: str) -> int:
    value = definition.parse(text)
    assert isinstance(value, int)
    return value


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
