"""Who may create, renew and expire delegation tokens: clients that have authenticated, but not with a token. To create
one for another user, a client needs CREATE_TOKENS on that user. The controller checks who owns or renews a token.
"""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.steps import Steps, no_steps
from moldau.metadata.controller.delegation_tokens import NO_TIME, check_principals, owner_of, refused_creation
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import USER_CREATE_TOKENS
from moldau.security.delegation_tokens import may_use_tokens
from moldau.server.handlers.authorized_requests.authorized import Authorize, Authorized, unchanged
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.wire.schema import Message


def authorize_create_token(request: CreateDelegationTokenRequest, access: Access) -> Steps[Authorized]:
    refusal = _refusal(request, access)
    if refusal is None:
        return no_steps(Authorized(request, unchanged))
    return _refused(refused_creation(request, access.principal, refusal))


def _refusal(request: CreateDelegationTokenRequest, access: Access) -> ErrorCode | None:
    requester = access.principal
    if not may_use_tokens(requester):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    owner = owner_of(request, requester)
    is_other = (owner.type, owner.name) != (requester.type, requester.name)
    if is_other and not access.allows(USER_CREATE_TOKENS, str(owner)):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    return check_principals(request, requester)


def authorize_token_change(response: type[Any]) -> Authorize:
    """For RenewDelegationToken and ExpireDelegationToken."""

    def authorize(request: Message, access: Access) -> Steps[Authorized]:
        if may_use_tokens(access.principal):
            return no_steps(Authorized(request, unchanged))
        return _refused(response(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIME))

    return authorize


def _refused(response: Message) -> Steps[Authorized]:
    """Nothing is left of the request, and this is the whole response."""
    return no_steps(Authorized(None, lambda _: no_steps(response)))
