"""ListConfigResources v0–1. The names of topics, brokers, groups or client metrics that have configs. Version 0 lists
client metrics only."""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode
from moldau.metadata.current import CurrentImage
from moldau.metadata.records import ConfigResource
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_DESCRIBE_CONFIGS
from moldau.server.handler import Caller, Handler
from moldau.wire.apis import ApiKey
from moldau.wire.messages import list_config_resources
from moldau.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

KINDS: Final = (
    ConfigResource.TOPIC,
    ConfigResource.BROKER,
    ConfigResource.BROKER_LOGGER,
    ConfigResource.CLIENT_METRICS,
    ConfigResource.GROUP,
)


class ListConfigResources(Handler):
    api = ApiKey.LIST_CONFIG_RESOURCES
    versions = (0, 1)
    needs = (CLUSTER_DESCRIBE_CONFIGS,)

    def __init__(self, current: CurrentImage) -> None:
        self._current = current

    def answer(self, request: ListConfigResourcesRequest, caller: Caller) -> ListConfigResourcesResponse:
        if not caller.access.allows(CLUSTER_DESCRIBE_CONFIGS):
            return ListConfigResourcesResponse(error_code=denied(CLUSTER_DESCRIBE_CONFIGS).code)
        kinds = set(request.resource_types) if caller.version else {ConfigResource.CLIENT_METRICS}
        if not kinds <= set(KINDS):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        kinds = kinds or set(KINDS)
        return ListConfigResourcesResponse(
            config_resources=[
                list_config_resources.ConfigResource(name, kind)
                for kind in KINDS
                if kind in kinds
                for name in self._names(kind)
            ]
        )

    def _names(self, kind: ConfigResource) -> list[str]:
        image = self._current.image
        if kind == ConfigResource.TOPIC:
            return sorted(image.topics)
        if kind in (ConfigResource.BROKER, ConfigResource.BROKER_LOGGER):
            return [str(broker.id) for broker in image.live_brokers()]
        return sorted(name for each, name in image.configs if each == kind)
