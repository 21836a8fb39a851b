"""DescribeConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moldau.client.requests.ask import Ask, raise_error
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32
"""The types of config resources."""
SET: Final = 0
DELETE: Final = 1


def describe_configs(
    ask: Ask,
    kind: int,
    names: Iterable[str],
    configs: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> Sequence[DescribeConfigsResult]:
    """Return these configs, or all, of each resource, or its error. A node leaves out configs that it does not know."""
    request = describe_configs_request(kind, names, configs, synonyms, documentation)
    return ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse).results


def describe_configs_request(
    kind: int,
    names: Iterable[str],
    configs: Sequence[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsRequest:
    resources = [DescribeConfigsResource(kind, name, configs) for name in names]
    return DescribeConfigsRequest(resources, synonyms, documentation)


def alter_configs(ask: Ask, changes: Mapping[tuple[int, str], Iterable[tuple[str, str | None]]]) -> None:
    """Change the configs of resources, each given by type and name; None removes a config. Raise the first error."""
    resources = [
        AlterConfigsResource(
            kind,
            name,
            [AlterableConfig(key, DELETE if value is None else SET, value) for key, value in its_changes],
        )
        for (kind, name), its_changes in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(resources)
    for result in ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse).responses:
        raise_error(result.error_code, result.error_message)


def resources_with_configs(ask: Ask, kind: int) -> set[str]:
    """Return the names of the resources of this type that have configs."""
    response = ask(ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest([kind]), ListConfigResourcesResponse)
    raise_error(response.error_code)
    return {each.resource_name for each in response.config_resources if each.resource_type == kind}
