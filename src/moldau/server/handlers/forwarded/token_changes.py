"""RenewDelegationToken v1–2 and ExpireDelegationToken v1–2. Clients that have authenticated, but not with a token, may
request them; the controller checks that the client owns the token or is one of its renewers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.base.steps import Steps, no_steps
from moldau.coordinator.transaction.transaction import NO_TIME
from moldau.security.acls.access import Access
from moldau.security.delegation_tokens import may_use_tokens
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction
from moldau.server.handlers.authorized_requests.authorized import Authorized, unchanged
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.wire.schema import Message


class TokenChange(ForwardedHandler):
    needs = ()

    def authorize(self, request: Message, access: Access) -> Steps[Authorized]:
        if may_use_tokens(access.principal):
            return no_steps(Authorized(request, unchanged))
        response: Any = response_class(self.api)
        return refused_with(response(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIME))

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        """The request has no id of the token, and its HMAC is a secret."""
        detail = "" if response.error_code else f"expires={response.expiry_timestamp_ms}"
        yield AdminAction("delegation_token:", response.error_code, detail)


def refused_with(response: Message) -> Steps[Authorized]:
    """Nothing is left of the request, and this is the whole response."""
    return no_steps(Authorized(None, lambda _: no_steps(response)))


class RenewDelegationToken(TokenChange):
    api = ApiKey.RENEW_DELEGATION_TOKEN
    versions = (1, 2)

    @staticmethod
    def decide(
        deciders: Deciders, request: RenewDelegationTokenRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.tokens.renew(request, client)


class ExpireDelegationToken(TokenChange):
    api = ApiKey.EXPIRE_DELEGATION_TOKEN
    versions = (1, 2)

    @staticmethod
    def decide(
        deciders: Deciders, request: ExpireDelegationTokenRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.tokens.expire(request, client)
