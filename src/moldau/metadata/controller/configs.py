"""Changing configs of topics and brokers: AlterConfigs v0–2 (all at once, what is not named falls back to its default)
and IncrementalAlterConfigs v0–1 (one by one, with APPEND and SUBTRACT for lists). Each resource by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from moldau.base.broker_configs import broker_config, broker_value, check_dynamic_broker_configs
from moldau.base.config_def import BrokerLayers, ConfigDef, ConfigType, ConfigValue
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.topic_configs import TOPIC_CONFIGS, check_topic_configs, topic_config_values
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigRecord, ConfigResource, MetadataRecord
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

R = TypeVar("R", alter_configs.AlterConfigsResource, incremental_alter_configs.AlterConfigsResource)
Outcome = tuple[int, str | None, int, str]
"""Error code, message, resource type and name, as both responses have them."""

BROKER_ID_DIGITS_MAX = 10
CLUSTER_DEFAULT = ""
"""The broker resource with the empty name stands for all brokers."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def broker_layers(image: MetadataImage, node_id: int, static: Mapping[str, str]) -> BrokerLayers:
    """What is said about one broker's keys: to it, to all, and in its file."""
    return BrokerLayers(
        dynamic=image.configs_of(ConfigResource.BROKER, str(node_id)),
        dynamic_default=image.configs_of(ConfigResource.BROKER, CLUSTER_DEFAULT),
        static=static,
    )


def decide_alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, broker: BrokerLayers
) -> Decision[AlterConfigsResponse]:
    def wanted(resource: alter_configs.AlterConfigsResource) -> dict[str, str]:
        return _all_given({config.name: config.value for config in resource.configs})

    outcomes, records = _decide(image, request.resources, broker, wanted)
    responses = [alter_configs.AlterConfigsResourceResponse(*outcome) for outcome in outcomes]
    return Decision(AlterConfigsResponse(responses=responses), () if request.validate_only else records)


def decide_incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, broker: BrokerLayers
) -> Decision[IncrementalAlterConfigsResponse]:
    def wanted(resource: incremental_alter_configs.AlterConfigsResource) -> dict[str, str]:
        key = (resource.resource_type, resource.resource_name)
        configs = dict(image.configs_of(*key))
        for config in resource.configs:
            _operate(configs, config, key, broker)
        return configs

    outcomes, records = _decide(image, request.resources, broker, wanted)
    responses = [incremental_alter_configs.AlterConfigsResourceResponse(*outcome) for outcome in outcomes]
    return Decision(IncrementalAlterConfigsResponse(responses=responses), () if request.validate_only else records)


def _decide(
    image: MetadataImage, resources: Sequence[R], broker: BrokerLayers, wanted: Callable[[R], Mapping[str, str]]
) -> tuple[list[Outcome], tuple[MetadataRecord, ...]]:
    """What comes of each resource, and the records of those that may be as `wanted`."""
    outcomes: list[Outcome] = []
    records: list[MetadataRecord] = []
    repeated = _repeated([(each.resource_type, each.resource_name) for each in resources])
    for resource in resources:
        key: tuple[int, str] = (resource.resource_type, resource.resource_name)
        error, message = 0, None
        try:
            _check_resource(image, key, repeated, [config.name for config in resource.configs])
            records += _change(image, key, wanted(resource), broker)
        except KafkaError as refused:
            error, message = refused.code, refused.message
        outcomes.append((error, message, key[0], key[1]))
    return outcomes, tuple(records)


def _repeated(keys: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
    return {key for key, times in Counter(keys).items() if times > 1}


def _check_resource(
    image: MetadataImage, key: tuple[int, str], repeated: set[tuple[int, str]], names: list[str]
) -> None:
    kind, name = key
    if key in repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if kind == ConfigResource.TOPIC:
        if name not in image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif kind == ConfigResource.BROKER:
        if name != CLUSTER_DEFAULT and not _is_broker(image, name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"No broker with id {name!r} is registered.")
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}.")


def _is_broker(image: MetadataImage, name: str) -> bool:
    # Longer ones are no ids, and Python does not even read numbers of some thousand digits.
    return len(name) <= BROKER_ID_DIGITS_MAX and name.isascii() and name.isdecimal() and int(name) in image.brokers


def _all_given(configs: Mapping[str, str | None]) -> dict[str, str]:
    empty = [name for name, value in configs.items() if value is None]
    if empty:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(empty)}")
    return {name: value for name, value in configs.items() if value is not None}


def _operate(wanted: dict[str, str], config: AlterableConfig, key: tuple[int, str], broker: BrokerLayers) -> None:
    """Does one operation on the configs a resource has."""
    try:
        operation = Operation(config.config_operation)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}.") from None
    if operation is Operation.DELETE:
        wanted.pop(config.name, None)
        return
    value = _all_given({config.name: config.value})[config.name]
    if operation is Operation.SET:
        wanted[config.name] = value
        return
    definition = _definition(key[0], config.name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {config.name} because its type is not LIST."
        )
    have = _list_value(wanted, definition, key, broker)
    items = [item for item in value.split(",") if item]
    if operation is Operation.APPEND:
        wanted[config.name] = ",".join([*have, *(item for item in items if item not in have)])
    else:
        wanted[config.name] = ",".join(item for item in have if item not in items)


def _definition(kind: int, name: str) -> ConfigDef | None:
    return TOPIC_CONFIGS.get(name) if kind == ConfigResource.TOPIC else broker_config(name)


def _list_value(
    wanted: Mapping[str, str], definition: ConfigDef, key: tuple[int, str], broker: BrokerLayers
) -> tuple[str, ...]:
    """The list in force now, whoever set it: what is appended to."""
    value: ConfigValue
    if definition.name in wanted:
        value = definition.parse(wanted[definition.name])
    elif key[0] == ConfigResource.TOPIC:
        value = topic_config_values({}, broker)[definition.name]
    else:
        value = broker_value(definition.name, broker)
    assert value is None or isinstance(value, tuple)
    return value or ()


def _change(
    image: MetadataImage, key: tuple[int, str], wanted: Mapping[str, str], broker: BrokerLayers
) -> list[MetadataRecord]:
    """The records from what a resource has to what it shall have; KafkaError if it cannot have that."""
    kind, name = key
    have = image.configs_of(kind, name)
    if kind == ConfigResource.TOPIC:
        check_topic_configs(wanted, broker)
    else:
        changed = {n: value for n, value in wanted.items() if have.get(n) != value}
        check_dynamic_broker_configs(changed, per_broker=name != CLUSTER_DEFAULT)
    gone: list[MetadataRecord] = [ConfigRecord(kind, name, n, None) for n in have if n not in wanted]
    return gone + [ConfigRecord(kind, name, n, value) for n, value in wanted.items() if have.get(n) != value]
