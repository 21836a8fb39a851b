"""UnregisterBroker v0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.promise import Promise
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest


class UnregisterBroker(ForwardedHandler):
    api = ApiKey.UNREGISTER_BROKER
    versions = (0, 0)
    needs = (CLUSTER_ALTER,)

    @staticmethod
    def decide(
        deciders: Deciders, request: UnregisterBrokerRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.broker_requests.unregister(request)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        yield AdminAction(f"broker:{request.broker_id}", response.error_code)
