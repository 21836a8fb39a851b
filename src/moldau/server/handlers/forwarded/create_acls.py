"""CreateAcls v1–3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.acls import decide_create_acls
from moldau.metadata.controller.topics import new_uuid
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.forwarded import Deciders
from moldau.server.handlers.forwarded.acl_changes import AclChange, acl_action
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


class CreateAcls(AclChange):
    api = ApiKey.CREATE_ACLS
    versions = (1, 3)

    @staticmethod
    def decide(deciders: Deciders, request: CreateAclsRequest, version: int, client: Client | None) -> Promise[Any]:
        return deciders.admin.submit(
            lambda image: decide_create_acls(image, request, lambda: new_uuid(deciders.admin.rng))
        )

    def refuse(self, request: CreateAclsRequest, error: KafkaError) -> Steps[CreateAclsResponse]:
        count = len(request.creations)
        if count > LISTED_A_TURN:
            yield  # so that the response is encoded in a thread
        return CreateAclsResponse(results=[AclCreationResult(error.code, error.message)] * count)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        for creation, result in zip(request.creations, response.results, strict=False):
            yield acl_action(creation, creation.resource_pattern_type, result.error_code)
