"""UpdateFeatures v0–2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.promise import Promise
from moldau.metadata.controller.features import decide_update_features
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction, joined
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.update_features import UpdateFeaturesRequest


class UpdateFeatures(ForwardedHandler):
    api = ApiKey.UPDATE_FEATURES
    versions = (0, 2)
    needs = (CLUSTER_ALTER,)

    @staticmethod
    def decide(deciders: Deciders, request: UpdateFeaturesRequest, version: int, client: Client | None) -> Promise[Any]:
        return deciders.admin.submit(lambda image: decide_update_features(image, request))

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        levels = [f"{update.feature}={update.max_version_level}" for update in request.feature_updates]
        yield AdminAction("cluster:", response.error_code, joined(levels))
