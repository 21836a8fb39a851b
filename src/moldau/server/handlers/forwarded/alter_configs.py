"""AlterConfigs v0–2. Configs that are not named return to their defaults."""

from __future__ import annotations

from typing import Any

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.configs import decide_alter_configs
from moldau.security.principals import Client
from moldau.server.handlers.forwarded import Deciders
from moldau.server.handlers.forwarded.config_changes import ConfigChange
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


class AlterConfigs(ConfigChange):
    api = ApiKey.ALTER_CONFIGS
    versions = (0, 2)

    @staticmethod
    def decide(deciders: Deciders, request: AlterConfigsRequest, version: int, client: Client | None) -> Promise[Any]:
        return deciders.admin.submit(lambda image: decide_alter_configs(image, request, deciders.admin.layers(image)))

    def refuse(self, request: AlterConfigsRequest, error: KafkaError) -> Steps[AlterConfigsResponse]:
        responses = yield from map_in_steps(
            TurnItems(LISTED_A_TURN),
            request.resources,
            lambda each: AlterConfigsResourceResponse(
                error.code, error.message, each.resource_type, each.resource_name
            ),
        )
        return AlterConfigsResponse(responses=responses)
