"""DescribeDelegationToken v1–3: the tokens that a client owns, has requested, may renew, or may see by ACLs, with their
hmacs; others are left out silently. A filter by owners matches owner, requester and renewers, as in Kafka. From this
node's image: a token that was just created may be missing for a moment. There may be tens of thousands, each with a
hash, so they are described in turns.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.turns import SLOW_ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import TOKEN_DESCRIBE, USER_DESCRIBE_TOKENS
from moldau.security.delegation_tokens import DelegationToken, TokenHmacs, may_use_tokens
from moldau.security.principals import Principal
from moldau.security.token_settings import TokenSettings
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import in_turns
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

SORTED_TOKENS_MAX: Final = 10_000
"""More are described in any order, as by Kafka: sorting them would hold up the loop."""


class DescribeDelegationToken(Handler):
    api = ApiKey.DESCRIBE_DELEGATION_TOKEN
    versions = (1, 3)
    needs = (TOKEN_DESCRIBE, USER_DESCRIBE_TOKENS)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, delegation_tokens: TokenSettings, timers: Timers) -> None:
        self._timers = timers
        self._current = current
        self._is_enabled = delegation_tokens.is_enabled
        self._hmacs = TokenHmacs(delegation_tokens.secret_key)

    def answer(
        self, request: DescribeDelegationTokenRequest, caller: Caller
    ) -> DescribeDelegationTokenResponse | Promise[DescribeDelegationTokenResponse]:
        if not may_use_tokens(caller.access.principal):
            return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if not self._is_enabled:
            return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        owners = None
        if request.owners is not None:
            owners = {Principal(each.principal_type, each.principal_name) for each in request.owners}
        tokens = list(self._current.image.delegation_tokens.values())
        if len(tokens) <= SORTED_TOKENS_MAX:
            tokens.sort(key=attrgetter("issued_ms", "id"))
        return in_turns(
            self._timers,
            tokens,
            lambda token: self._describe(token, owners, caller.access),
            lambda described: DescribeDelegationTokenResponse(tokens=[each for each in described if each is not None]),
            SLOW_ITEMS_A_TURN,
        )

    def _describe(
        self, token: DelegationToken, owners: AbstractSet[Principal] | None, access: Access
    ) -> DescribedDelegationToken | None:
        """Return the token; None if the client did not ask for it or may not see it."""
        if owners is not None and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            return None
        if not _may_see(token, access):
            return None
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
        token.concerns(access.principal)
        or access.allows_quietly(TOKEN_DESCRIBE, token.id)
        or access.allows_quietly(USER_DESCRIBE_TOKENS, str(token.owner))
    )
