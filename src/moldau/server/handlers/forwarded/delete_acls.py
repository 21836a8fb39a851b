"""DeleteAcls v1–3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.acls import decide_delete_acls
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.forwarded import Deciders
from moldau.server.handlers.forwarded.acl_changes import AclChange, acl_action
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


class DeleteAcls(AclChange):
    api = ApiKey.DELETE_ACLS
    versions = (1, 3)

    @staticmethod
    def decide(deciders: Deciders, request: DeleteAclsRequest, version: int, client: Client | None) -> Promise[Any]:
        return deciders.admin.submit(lambda image: decide_delete_acls(image, request))

    def refuse(self, request: DeleteAclsRequest, error: KafkaError) -> Steps[DeleteAclsResponse]:
        count = len(request.filters)
        if count > LISTED_A_TURN:
            yield  # so that the response is encoded in a thread
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error.code, error.message)] * count)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        for result in response.filter_results:
            if result.error_code:
                yield AdminAction("acl:", result.error_code)
            for removed in result.matching_acls:
                yield acl_action(removed, removed.pattern_type, removed.error_code)
