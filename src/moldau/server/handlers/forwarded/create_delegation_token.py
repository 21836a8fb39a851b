"""CreateDelegationToken v1–3: for clients that have authenticated, but not with a token. To create one for another
user, a client needs CREATE_TOKENS on that user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, no_steps
from moldau.metadata.controller.delegation_tokens import check_principals, owner_of, refused_creation
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import USER_CREATE_TOKENS
from moldau.security.delegation_tokens import may_use_tokens
from moldau.security.principals import ANONYMOUS, Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.authorized_requests.authorized import Authorized, unchanged
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.server.handlers.forwarded.token_changes import refused_with
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.wire.schema import Message


class CreateDelegationToken(ForwardedHandler):
    api = ApiKey.CREATE_DELEGATION_TOKEN
    versions = (1, 3)
    needs = (USER_CREATE_TOKENS,)

    def authorize(self, request: CreateDelegationTokenRequest, access: Access) -> Steps[Authorized]:
        refusal = _refusal(request, access)
        if refusal is None:
            return no_steps(Authorized(request, unchanged))
        return refused_with(refused_creation(request, access.principal, refusal))

    @staticmethod
    def decide(
        deciders: Deciders, request: CreateDelegationTokenRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.tokens.create(request, client)

    def refuse(self, request: CreateDelegationTokenRequest, error: KafkaError) -> Steps[Message]:
        return no_steps(refused_creation(request, ANONYMOUS, error.code))

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        owner = f"{response.principal_type}:{response.principal_name}"
        detail = "" if response.error_code else f"owner={owner} expires={response.expiry_timestamp_ms}"
        yield AdminAction(f"delegation_token:{response.token_id}", response.error_code, detail)


def _refusal(request: CreateDelegationTokenRequest, access: Access) -> ErrorCode | None:
    requester = access.principal
    if not may_use_tokens(requester):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    owner = owner_of(request, requester)
    is_other = (owner.type, owner.name) != (requester.type, requester.name)
    if is_other and not access.allows(USER_CREATE_TOKENS, str(owner)):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    return check_principals(request, requester)
