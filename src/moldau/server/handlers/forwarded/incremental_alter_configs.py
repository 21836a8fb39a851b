"""IncrementalAlterConfigs v0–1 (KIP-339)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.configs import decide_incremental_alter_configs
from moldau.runtime.controller.channel import AskController
from moldau.runtime.log_levels import LogLevels
from moldau.security.principals import Client
from moldau.server.handlers.authorized_requests.authorized import Authorize
from moldau.server.handlers.authorized_requests.log_levels import changing_log_levels
from moldau.server.handlers.forwarded import Deciders
from moldau.server.handlers.forwarded.config_changes import ConfigChange
from moldau.wire.apis import ApiKey
from moldau.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class IncrementalAlterConfigs(ConfigChange):
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    versions = (0, 1)

    def __init__(
        self,
        forward: AskController,
        timers: Timers,
        with_listener_configs: Callable[[Authorize], Authorize],
        node_id: int,
        log_levels: LogLevels,
    ) -> None:
        super().__init__(
            forward,
            timers,
            lambda authorize: with_listener_configs(changing_log_levels(authorize, node_id, log_levels)),
        )

    @staticmethod
    def decide(
        deciders: Deciders, request: IncrementalAlterConfigsRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.admin.submit(
            lambda image: decide_incremental_alter_configs(image, request, deciders.admin.layers(image))
        )

    def refuse(
        self, request: IncrementalAlterConfigsRequest, error: KafkaError
    ) -> Steps[IncrementalAlterConfigsResponse]:
        responses = yield from map_in_steps(
            TurnItems(LISTED_A_TURN),
            request.resources,
            lambda each: AlterConfigsResourceResponse(
                error.code, error.message, each.resource_type, each.resource_name
            ),
        )
        return IncrementalAlterConfigsResponse(responses=responses)
