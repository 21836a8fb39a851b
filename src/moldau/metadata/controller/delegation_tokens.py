"""Creating, renewing, expiring and removing delegation tokens: CreateDelegationToken v1–3, RenewDelegationToken v1–2,
ExpireDelegationToken v1–2 (KIP-48, KIP-900; owners other than the requester: KIP-373).

The node to which the client is connected has authorized the request; here only owner and renewers count. Times are
those of the wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.base.errors import ErrorCode
from moldau.base.limits import TOKEN_RENEWERS_MAX, TOKENS_OF_REQUESTER_MAX
from moldau.base.turns import TOKENS_A_DECISION
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.metadata.snapshot import token_record
from moldau.security.delegation_tokens import DelegationToken, TokenHmacs, may_use_tokens
from moldau.security.principals import PRINCIPAL_LENGTH_MAX, USER, Principal
from moldau.security.token_settings import TokenSettings
from moldau.wire.log_records.metadata import RemoveDelegationTokenRecord
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

TIME_MAX: Final = 2**63 - 1
NO_TIME: Final = -1
"""In responses to requests that were refused before the token was looked for."""


@dataclass(frozen=True, slots=True)
class TokenContext:
    """What a decision depends on besides the image and the request itself."""

    settings: TokenSettings
    hmacs: TokenHmacs
    requester: Principal
    now_ms: int

    def refusal(self) -> ErrorCode | None:
        if not may_use_tokens(self.requester):
            return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return None if self.settings.is_enabled else ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Return for whom a token is created: the requester, if the request names nobody."""
    if not request.owner_principal_name:
        return Principal(requester.type, requester.name)
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def refused_creation(
    request: CreateDelegationTokenRequest, requester: Principal, code: ErrorCode
) -> CreateDelegationTokenResponse:
    owner = owner_of(request, requester)
    return CreateDelegationTokenResponse(
        code, owner.type, owner.name, requester.type, requester.name, NO_TIME, NO_TIME, NO_TIME
    )


def check_principals(request: CreateDelegationTokenRequest, requester: Principal) -> ErrorCode | None:
    """Return why owner or renewers are refused. Tokens are of users only: their bearers log in as users."""
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    named = [owner_of(request, requester), *renewers]
    if any(each.type != USER for each in named):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    is_too_large = len(renewers) > TOKEN_RENEWERS_MAX or any(len(each.name) > PRINCIPAL_LENGTH_MAX for each in named)
    return ErrorCode.INVALID_REQUEST if is_too_large or not all(each.name for each in named) else None


def decide_create_token(
    image: MetadataImage, request: CreateDelegationTokenRequest, context: TokenContext, token_id: str
) -> Decision[CreateDelegationTokenResponse]:
    requester = Principal(context.requester.type, context.requester.name)
    refusal = context.refusal() or check_principals(request, requester)
    if refusal is None and _count(image, requester) >= TOKENS_OF_REQUESTER_MAX:
        refusal = ErrorCode.POLICY_VIOLATION
    if refusal is not None:
        return Decision(refused_creation(request, requester, refusal))
    settings, now_ms = context.settings, context.now_ms
    lifetime_ms = settings.lifetime_ms_max
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = min(now_ms + lifetime_ms, TIME_MAX)
    token = DelegationToken(
        token_id,
        owner_of(request, requester),
        requester,
        tuple(Principal(each.principal_type, each.principal_name) for each in request.renewers),
        now_ms,
        max_ms,
        min(max_ms, now_ms + settings.expiry_time_ms),
    )
    response = CreateDelegationTokenResponse(
        ErrorCode.NONE,
        token.owner.type,
        token.owner.name,
        requester.type,
        requester.name,
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        token.id,
        context.hmacs.hmac(token.id),
    )
    return Decision(response, (token_record(token),))


def decide_renew_token(
    image: MetadataImage, request: RenewDelegationTokenRequest, context: TokenContext
) -> Decision[RenewDelegationTokenResponse]:
    found = _find(image, request.hmac, context)
    if isinstance(found, ErrorCode):
        return Decision(RenewDelegationTokenResponse(found))
    if found.lifetime_ms(context.now_ms) < 0:
        return Decision(RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_EXPIRED))
    if not found.belongs_to(context.requester):
        return Decision(RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    period_ms = context.settings.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    renewed = found._replace(expires_ms=min(found.max_ms, context.now_ms + period_ms))
    return Decision(RenewDelegationTokenResponse(ErrorCode.NONE, renewed.expires_ms), (token_record(renewed),))


def decide_expire_token(
    image: MetadataImage, request: ExpireDelegationTokenRequest, context: TokenContext
) -> Decision[ExpireDelegationTokenResponse]:
    found = _find(image, request.hmac, context)
    if isinstance(found, ErrorCode):
        return Decision(ExpireDelegationTokenResponse(found))
    if not found.belongs_to(context.requester):
        return Decision(ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    if request.expiry_time_period_ms < 0:
        response = ExpireDelegationTokenResponse(ErrorCode.NONE, context.now_ms)
        return Decision(response, (RemoveDelegationTokenRecord(found.id),))
    if found.lifetime_ms(context.now_ms) < 0:
        return Decision(ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_EXPIRED))
    changed = found._replace(expires_ms=min(found.max_ms, context.now_ms + request.expiry_time_period_ms))
    return Decision(ExpireDelegationTokenResponse(ErrorCode.NONE, changed.expires_ms), (token_record(changed),))


def decide_remove_expired_tokens(image: MetadataImage, now_ms: int) -> Decision[bool]:
    """Remove tokens that have expired. The response says whether there are more: one decision must not take long."""
    expired = sorted(token.id for token in image.delegation_tokens.values() if token.lifetime_ms(now_ms) < 0)
    records = tuple(RemoveDelegationTokenRecord(token_id) for token_id in expired[:TOKENS_A_DECISION])
    return Decision(len(expired) > TOKENS_A_DECISION, records)


def _find(image: MetadataImage, hmac: bytes, context: TokenContext) -> DelegationToken | ErrorCode:
    refusal = context.refusal()
    if refusal is not None:
        return refusal
    return context.hmacs.find(image.delegation_tokens, bytes(hmac)) or ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def _count(image: MetadataImage, requester: Principal) -> int:
    return sum(token.requester == requester for token in image.delegation_tokens.values())
