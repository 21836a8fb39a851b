"""DescribeDelegationToken v1–3: the tokens that a client owns, may renew, or may see by ACLs, with their hmacs; others
are left out silently. From this node's image: a token that was just created may be missing for a moment.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.metadata.current import CurrentImage
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import TOKEN_DESCRIBE, USER_DESCRIBE_TOKENS
from moldau.security.delegation_tokens import DelegationToken, TokenHmacs, may_use_tokens
from moldau.security.principals import Principal
from moldau.security.token_settings import TokenSettings
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


class DescribeDelegationToken:
    api = ApiKey.DESCRIBE_DELEGATION_TOKEN
    versions = (1, 3)

    def __init__(self, current: CurrentImage, settings: TokenSettings) -> None:
        self._current = current
        self._is_enabled = settings.is_enabled
        self._hmacs = TokenHmacs(settings.secret_key)

    def answer(self, request: DescribeDelegationTokenRequest, caller: Caller) -> DescribeDelegationTokenResponse:
        if not may_use_tokens(caller.access.principal):
            return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if not self._is_enabled:
            return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        owners = None
        if request.owners is not None:
            owners = {Principal(each.principal_type, each.principal_name) for each in request.owners}
        tokens = [
            token
            for token in self._current.image.delegation_tokens.values()
            if (owners is None or not owners.isdisjoint((token.owner, *token.renewers)))
            and _may_see(token, caller.access)
        ]
        tokens.sort(key=lambda token: (token.issued_ms, token.id))
        return DescribeDelegationTokenResponse(tokens=[self._described(token) for token in tokens])

    def _described(self, token: DelegationToken) -> DescribedDelegationToken:
        return DescribedDelegationToken(
            token.owner.type,
            token.owner.name,
            token.requester.type,
            token.requester.name,
            token.issued_ms,
            token.expires_ms,
            token.max_ms,
            token.id,
            self._hmacs.hmac(token.id),
            [DescribedDelegationTokenRenewer(each.type, each.name) for each in token.renewers],
        )


def _may_see(token: DelegationToken, access: Access) -> bool:
    return (
        token.belongs_to(access.principal)
        or access.allows_quietly(TOKEN_DESCRIBE, token.id)
        or access.allows_quietly(USER_DESCRIBE_TOKENS, str(token.owner))
    )
