"""Changing configs of topics, brokers and client metrics: AlterConfigs v0–2 (replaces all configs of a resource; others
fall back to their default) and IncrementalAlterConfigs v0–1 (changes single configs, with APPEND and SUBTRACT for
lists). Each resource succeeds or fails alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from moldau.base.broker_configs import broker_config, broker_value, check_dynamic_broker_configs
from moldau.base.client_metrics_configs import CLIENT_METRICS_CONFIGS, check_client_metrics_configs
from moldau.base.config_def import BrokerLayers, ConfigDef, ConfigType, ConfigValue
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.group_configs import GROUP_CONFIGS, check_group_configs
from moldau.base.limits import STRING_BYTES_MAX
from moldau.base.settings.own import MOLDAU_SCRAM_SECRET
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.topic_configs import TOPIC_CONFIGS, check_topic_configs, topic_config_values
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.broker_configs import CLUSTER_DEFAULT
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.views import refuse_view_configs
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import ConfigRecord
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.schema import MetadataRecord

AlteredResource = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource
Outcome = tuple[int, str | None, int, str]
"""Error code, message, resource type and resource name, as in both responses."""

BROKER_ID_DIGITS_MAX = 10
RESOURCE_COST: Final = 10
"""A resource takes as long to decide as so many configs."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def decide_alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, broker_configs: BrokerLayers
) -> Steps[Decision[AlterConfigsResponse]]:
    outcomes, records = yield from _decide(image, request.resources, broker_configs)
    responses = yield from map_in_steps(
        TurnItems(ITEMS_A_TURN), outcomes, lambda outcome: alter_configs.AlterConfigsResourceResponse(*outcome)
    )
    return Decision(AlterConfigsResponse(responses=responses), () if request.validate_only else records)


def decide_incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, broker_configs: BrokerLayers
) -> Steps[Decision[IncrementalAlterConfigsResponse]]:
    outcomes, records = yield from _decide(image, request.resources, broker_configs)
    responses = yield from map_in_steps(
        TurnItems(ITEMS_A_TURN),
        outcomes,
        lambda outcome: incremental_alter_configs.AlterConfigsResourceResponse(*outcome),
    )
    return Decision(IncrementalAlterConfigsResponse(responses=responses), () if request.validate_only else records)


def configs_after(image: MetadataImage, resource: AlteredResource, broker_configs: BrokerLayers) -> dict[str, str]:
    """Return the configs that a resource would have after this change. Raise KafkaError if the operations, without
    regard to the values, are invalid."""
    if isinstance(resource, alter_configs.AlterConfigsResource):
        return _check_no_nulls({config.name: config.value for config in resource.configs})
    key = (resource.resource_type, resource.resource_name)
    configs = dict(image.configs_of(*key))
    for config in resource.configs:
        _apply_operation(configs, config, key, broker_configs)
    return configs


def _decide(
    image: MetadataImage, resources: Sequence[AlteredResource], broker_configs: BrokerLayers
) -> Steps[tuple[list[Outcome], tuple[MetadataRecord, ...]]]:
    """Return the outcome of each resource, and the records that give the valid ones their new configs."""
    outcomes: list[Outcome] = []
    records: list[MetadataRecord] = []
    duplicates = _find_duplicates([(each.resource_type, each.resource_name) for each in resources])
    turn = TurnItems(ITEMS_A_TURN)
    for resource in resources:
        if turn.ends_after(RESOURCE_COST + len(resource.configs)):
            yield
        key: tuple[int, str] = (resource.resource_type, resource.resource_name)
        error, message = 0, None
        try:
            _check_resource(image, key, duplicates, [config.name for config in resource.configs])
            changes = _config_records(image, key, configs_after(image, resource, broker_configs), broker_configs)
            _check_existence(image, key)
            records += changes
        except KafkaError as refused:
            error, message = refused.code, refused.message
        outcomes.append((error, message, key[0], key[1]))
    return outcomes, tuple(records)


def _find_duplicates(keys: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
    return {key for key, count in Counter(keys).items() if count > 1}


def _check_resource(
    image: MetadataImage, key: tuple[int, str], duplicates: set[tuple[int, str]], names: list[str]
) -> None:
    kind, name = key
    if key in duplicates:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if kind == ConfigResource.BROKER:
        if name != CLUSTER_DEFAULT and not _is_broker(image, name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"No broker with id {name!r} is registered.")
    elif kind not in (ConfigResource.TOPIC, ConfigResource.CLIENT_METRICS, ConfigResource.GROUP):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}.")


def _check_existence(image: MetadataImage, key: tuple[int, str]) -> None:
    """Kafka checks the configs first: an invalid one of a missing topic is INVALID_CONFIG."""
    kind, name = key
    if kind == ConfigResource.TOPIC and name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _is_broker(image: MetadataImage, name: str) -> bool:
    # Check the length first: Python refuses to parse numbers with thousands of digits.
    return len(name) <= BROKER_ID_DIGITS_MAX and name.isascii() and name.isdecimal() and int(name) in image.brokers


def _check_no_nulls(configs: Mapping[str, str | None]) -> dict[str, str]:
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    return {name: value for name, value in configs.items() if value is not None}


def _apply_operation(
    configs: dict[str, str], config: AlterableConfig, key: tuple[int, str], broker_configs: BrokerLayers
) -> None:
    """Apply one operation to the configs of a resource."""
    try:
        operation = Operation(config.config_operation)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {config.config_operation}.") from None
    if operation is Operation.DELETE:
        configs.pop(config.name, None)
        return
    value = _check_no_nulls({config.name: config.value})[config.name]
    if operation is Operation.SET:
        configs[config.name] = value
        return
    definition = _definition(key[0], config.name)
    if definition is None or definition.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {config.name} because its type is not LIST."
        )
    current = _list_value(configs, definition, key, broker_configs)
    items = dict.fromkeys(item for item in value.split(",") if item)
    if operation is Operation.APPEND:
        changed = ",".join(dict.fromkeys([*current, *items]))
    else:
        changed = ",".join(item for item in current if item not in items)
    if len(changed.encode()) > STRING_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"The value of {config.name} would be longer than {STRING_BYTES_MAX:,} bytes."
        )
    configs[config.name] = changed


def _definition(kind: int, name: str) -> ConfigDef | None:
    if kind == ConfigResource.CLIENT_METRICS:
        return CLIENT_METRICS_CONFIGS.get(name)
    if kind == ConfigResource.GROUP:
        return GROUP_CONFIGS.get(name)
    return TOPIC_CONFIGS.get(name) if kind == ConfigResource.TOPIC else broker_config(name)


def _list_value(
    configs: Mapping[str, str], definition: ConfigDef, key: tuple[int, str], broker_configs: BrokerLayers
) -> tuple[str, ...]:
    """Return the effective list, from the resource, the broker or the default: APPEND and SUBTRACT change it."""
    value: ConfigValue
    if definition.name in configs:
        value = definition.parse(configs[definition.name])
    elif key[0] == ConfigResource.CLIENT_METRICS:
        value = definition.default
    elif key[0] == ConfigResource.TOPIC:
        value = topic_config_values({}, broker_configs)[definition.name]
    else:
        value = broker_value(definition, broker_configs)
    assert value is None or isinstance(value, tuple)
    return value or ()


def _config_records(
    image: MetadataImage, key: tuple[int, str], new: Mapping[str, str], broker_configs: BrokerLayers
) -> list[MetadataRecord]:
    """Return the records that change a resource's configs to `new`; raise KafkaError if they are invalid."""
    kind, name = key
    old = image.configs_of(kind, name)
    secret = MOLDAU_SCRAM_SECRET.name
    if secret in old:
        new = {secret: old[secret], **new}  # nobody removes it
    if kind == ConfigResource.TOPIC:
        refuse_view_configs(image, name, new)
        check_topic_configs(new, broker_configs)
    elif kind == ConfigResource.CLIENT_METRICS:
        check_client_metrics_configs(name, new)
    elif kind == ConfigResource.GROUP:
        check_group_configs(name, new, broker_configs)
    else:
        changed = {n: value for n, value in new.items() if old.get(n) != value}
        check_dynamic_broker_configs(changed, per_broker=name != CLUSTER_DEFAULT)
    removed: list[MetadataRecord] = [ConfigRecord(kind, name, n, None) for n in old if n not in new]
    return removed + [ConfigRecord(kind, name, n, value) for n, value in new.items() if old.get(n) != value]
