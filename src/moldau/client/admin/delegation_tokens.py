"""Creates, renews, expires and describes delegation tokens. Errors of the broker are raised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.principals import Principal
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from moldau.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@dataclass(frozen=True, slots=True)
class TokenWithHmac:
    token: DelegationToken
    hmac: bytes = field(repr=False)
    """In base64, it is the password of the token."""


class DelegationTokens:
    def __init__(self, admin: ClusterAdmin) -> None:
        self._admin = admin

    def create(
        self, renewers: Sequence[Principal] = (), max_lifetime_ms: int = -1, owner: Principal | None = None
    ) -> TokenWithHmac:
        """Create a token for this user, or for `owner`."""
        request = CreateDelegationTokenRequest(
            None if owner is None else owner.type,
            None if owner is None else owner.name,
            [CreatableRenewers(each.type, each.name) for each in renewers],
            max_lifetime_ms,
        )
        response = self._admin.ask(ApiKey.CREATE_DELEGATION_TOKEN, request, CreateDelegationTokenResponse)
        token = DelegationToken(
            response.token_id,
            Principal(response.principal_type, response.principal_name),
            Principal(response.token_requester_principal_type, response.token_requester_principal_name),
            tuple(renewers),
            response.issue_timestamp_ms,
            response.max_timestamp_ms,
            response.expiry_timestamp_ms,
        )
        return TokenWithHmac(token, bytes(response.hmac))

    def renew(self, hmac: bytes, period_ms: int = -1) -> int:
        """Return when the token expires now."""
        request = RenewDelegationTokenRequest(hmac, period_ms)
        return self._admin.ask(ApiKey.RENEW_DELEGATION_TOKEN, request, RenewDelegationTokenResponse).expiry_timestamp_ms

    def expire(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let the token expire after this time, at once if it is below 0. Return when it expires."""
        request = ExpireDelegationTokenRequest(hmac, period_ms)
        return self._admin.ask(
            ApiKey.EXPIRE_DELEGATION_TOKEN, request, ExpireDelegationTokenResponse
        ).expiry_timestamp_ms

    def describe(self, owners: Sequence[Principal] | None = None) -> list[TokenWithHmac]:
        """Return the tokens that this user may see: those that one of `owners` owns, has requested or may renew, or
        all."""
        named = None if owners is None else [DescribeDelegationTokenOwner(each.type, each.name) for each in owners]
        request = DescribeDelegationTokenRequest(named)
        response = self._admin.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, request, DescribeDelegationTokenResponse)
        return [
            TokenWithHmac(
                DelegationToken(
                    each.token_id,
                    Principal(each.principal_type, each.principal_name),
                    Principal(each.token_requester_principal_type, each.token_requester_principal_name),
                    tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in each.renewers),
                    each.issue_timestamp,
                    each.max_timestamp,
                    each.expiry_timestamp,
                ),
                bytes(each.hmac),
            )
            for each in response.tokens
        ]
