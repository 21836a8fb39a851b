"""Delegation tokens in the metadata: the controller's decisions on requests, and their records."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import restore

from moldau.base.errors import ErrorCode
from moldau.metadata.apply import apply
from moldau.metadata.controller import delegation_tokens
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.delegation_tokens import (
    TokenContext,
    decide_create_token,
    decide_expire_token,
    decide_remove_expired_tokens,
    decide_renew_token,
)
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import decode_record, encode_record
from moldau.metadata.snapshot import image_records
from moldau.security.delegation_tokens import DelegationToken, TokenHmacs
from moldau.security.principals import ANONYMOUS, Principal
from moldau.security.token_settings import TokenSettings
from moldau.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

ANN, BOB, EVE = (Principal("User", name) for name in ("ann", "bob", "eve"))
NOW_MS, DAY_MS = 1_700_000_000_000, 86_400_000
SETTINGS = TokenSettings("secret", 7 * DAY_MS, DAY_MS, 1000)
HMACS = TokenHmacs("secret")
LONG_MAX = 2**63 - 1


class TokenController:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self.settings = SETTINGS
        self.now_ms = NOW_MS

    def create(
        self, requester: Principal = ANN, lifetime_ms: int = -1, owner: Principal | None = None, *renewers: Principal
    ) -> Any:
        request = CreateDelegationTokenRequest(
            None if owner is None else owner.type,
            None if owner is None else owner.name,
            [CreatableRenewers(each.type, each.name) for each in renewers],
            lifetime_ms,
        )
        token_id = f"token-{len(self.image.delegation_tokens)}"
        return self._apply(decide_create_token(self.image, request, self._context(requester), token_id))

    def renew(self, token_id: str, requester: Principal = ANN, period_ms: int = -1) -> Any:
        request = RenewDelegationTokenRequest(HMACS.hmac(token_id), period_ms)
        return self._apply(decide_renew_token(self.image, request, self._context(requester)))

    def expire(self, token_id: str, requester: Principal = ANN, period_ms: int = -1) -> Any:
        request = ExpireDelegationTokenRequest(HMACS.hmac(token_id), period_ms)
        return self._apply(decide_expire_token(self.image, request, self._context(requester)))

    def token(self, token_id: str = "token-0") -> DelegationToken:
        return self.image.delegation_tokens[token_id]

    def _context(self, requester: Principal) -> TokenContext:
        return TokenContext(self.settings, TokenHmacs(self.settings.secret_key), requester, self.now_ms)

    def _apply(self, decision: Decision[Any]) -> Any:
        records = [decode_record(encode_record(record)) for record in decision.records]
        assert not records or decision.response.error_code == 0
        self.image, _ = apply(self.image, records, self.image.offset + 1, 1)
        return decision.response


@pytest.fixture
def controller() -> TokenController:
    return TokenController()


def test_a_token_is_created(controller: TokenController) -> None:
    response = controller.create(ANN, -1, None, BOB)
    assert controller.token() == DelegationToken(
        "token-0", ANN, ANN, (BOB,), NOW_MS, NOW_MS + 7 * DAY_MS, NOW_MS + DAY_MS
    )
    fields = {name: getattr(response, name) for name in response.__slots__}
    assert fields == {
        "error_code": 0,
        "principal_type": "User",
        "principal_name": "ann",
        "token_requester_principal_type": "User",
        "token_requester_principal_name": "ann",
        "issue_timestamp_ms": NOW_MS,
        "expiry_timestamp_ms": NOW_MS + DAY_MS,
        "max_timestamp_ms": NOW_MS + 7 * DAY_MS,
        "token_id": "token-0",
        "hmac": HMACS.hmac("token-0"),
        "throttle_time_ms": 0,
    }


def test_a_token_for_another_owner(controller: TokenController) -> None:
    response = controller.create(BOB, -1, ANN)
    assert (response.principal_name, response.token_requester_principal_name) == ("ann", "bob")
    assert (controller.token().owner, controller.token().requester) == (ANN, BOB)


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expires_ms"),
    [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (5, 5, 5),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (LONG_MAX, 7 * DAY_MS, DAY_MS),
        (-LONG_MAX, 7 * DAY_MS, DAY_MS),
    ],
)
def test_the_lifetime_of_a_new_token(controller: TokenController, asked_ms: int, max_ms: int, expires_ms: int) -> None:
    controller.create(ANN, asked_ms)
    assert (controller.token().max_ms - NOW_MS, controller.token().expires_ms - NOW_MS) == (max_ms, expires_ms)


def test_times_are_at_most_the_largest_int64(controller: TokenController) -> None:
    controller.settings = TokenSettings("secret", LONG_MAX, LONG_MAX, 1000)
    controller.create()
    assert controller.token()[-2:] == (LONG_MAX, LONG_MAX)
    assert controller.renew("token-0").expiry_timestamp_ms == LONG_MAX
    assert controller.expire("token-0", period_ms=LONG_MAX).expiry_timestamp_ms == LONG_MAX


@pytest.mark.parametrize(
    ("requester", "owner", "renewers", "code"),
    [
        (ANONYMOUS, None, [], ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (ANN._replace(by_token=True), None, [], ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (ANN, Principal("Group", "admins"), [], ErrorCode.INVALID_PRINCIPAL_TYPE),
        (ANN, None, [BOB, Principal("Group", "admins")], ErrorCode.INVALID_PRINCIPAL_TYPE),
        (ANN, None, [Principal("User", "")], ErrorCode.INVALID_REQUEST),
        (ANN, None, [Principal("User", "x" * 1025)], ErrorCode.INVALID_REQUEST),
        (ANN, None, [BOB] * 101, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_creation_is_refused(
    controller: TokenController,
    requester: Principal,
    owner: Principal | None,
    renewers: list[Principal],
    code: ErrorCode,
) -> None:
    response = controller.create(requester, -1, owner, *renewers)
    assert (response.error_code, response.hmac, response.token_id) == (code, b"", "")
    assert (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms) == (-1, -1, -1)
    assert not controller.image.delegation_tokens


def test_the_number_of_tokens_of_a_requester_is_limited(
    controller: TokenController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation_tokens, "TOKENS_OF_REQUESTER_MAX", 2)
    assert [controller.create().error_code for _ in range(3)] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert controller.create(BOB, -1, ANN).error_code == 0
    controller.expire("token-0")
    assert controller.create().error_code == 0


def test_without_a_secret_key_all_requests_are_refused(controller: TokenController) -> None:
    controller.create()
    controller.settings = TokenSettings()
    answers = [controller.create(), controller.renew("token-0"), controller.expire("token-0")]
    assert {each.error_code for each in answers} == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}
    assert len(controller.image.delegation_tokens) == 1


def test_a_token_is_renewed_up_to_its_maximum_lifetime(controller: TokenController) -> None:
    controller.create(ANN, -1, None, BOB)
    controller.now_ms += 1000
    assert (
        controller.renew("token-0").expiry_timestamp_ms == controller.now_ms + DAY_MS == controller.token().expires_ms
    )
    assert controller.renew("token-0", BOB, 500).expiry_timestamp_ms == controller.now_ms + 500
    assert controller.renew("token-0", ANN, 9 * DAY_MS).expiry_timestamp_ms == controller.now_ms + DAY_MS
    while controller.token().expires_ms < controller.token().max_ms:
        controller.now_ms += DAY_MS // 2
        assert controller.renew("token-0").error_code == 0
    assert controller.token().expires_ms == NOW_MS + 7 * DAY_MS
    assert controller.token()[:6] == ("token-0", ANN, ANN, (BOB,), NOW_MS, NOW_MS + 7 * DAY_MS)


def test_the_expiry_of_a_token_is_changed(controller: TokenController) -> None:
    controller.create(ANN, -1, None, BOB)
    assert controller.expire("token-0", BOB, 700).expiry_timestamp_ms == NOW_MS + 700 == controller.token().expires_ms
    assert controller.expire("token-0", ANN, 9 * DAY_MS).expiry_timestamp_ms == NOW_MS + 7 * DAY_MS
    assert controller.expire("token-0", ANN, 0).expiry_timestamp_ms == NOW_MS == controller.token().expires_ms
    assert controller.expire("token-0", ANN, -1).expiry_timestamp_ms == NOW_MS
    assert not controller.image.delegation_tokens
    assert controller.expire("token-0").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_changes_of_unknown_tokens_and_of_tokens_of_others_are_refused(controller: TokenController) -> None:
    controller.create(BOB, -1, ANN)
    for change in (controller.renew, controller.expire):
        assert change("token-9").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert change("token-0", EVE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert change("token-0", BOB).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "the requester"
        assert change("token-0", ANONYMOUS).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert controller.token().expires_ms == NOW_MS + DAY_MS


def test_an_expired_token_can_only_be_removed(controller: TokenController) -> None:
    controller.create()
    controller.now_ms += DAY_MS
    assert controller.renew("token-0").error_code == 0, "it expires after this millisecond"
    controller.now_ms += DAY_MS + 1
    assert controller.renew("token-0").error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert controller.expire("token-0", period_ms=5).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert controller.renew("token-0", EVE).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert controller.expire("token-0", EVE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert controller.expire("token-0").error_code == 0


def test_expired_tokens_are_removed_in_rounds(controller: TokenController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "TOKENS_A_DECISION", 2)
    for lifetime_ms in (5, 9, 5, 5):
        controller.create(ANN, lifetime_ms)
    rounds = []
    for now_ms in (NOW_MS + 5, NOW_MS + 6, NOW_MS + 6, NOW_MS + 6):
        decision = decide_remove_expired_tokens(controller.image, now_ms)
        rounds.append((decision.response, [record.token_id for record in decision.records]))  # type: ignore[attr-defined]
        controller.image, _ = apply(controller.image, decision.records, controller.image.offset + 1, 1)
    assert rounds == [(False, []), (True, ["token-0", "token-2"]), (False, ["token-3"]), (False, [])]
    assert list(controller.image.delegation_tokens) == ["token-1"]


def test_a_snapshot_restores_the_tokens(controller: TokenController) -> None:
    controller.create(ANN, -1, None, BOB, Principal("User", "a:b"))
    controller.create(BOB, 5, EVE)
    restored = restore(controller.image)
    assert restored == controller.image
    assert len(restored.delegation_tokens) == 2
    assert b"secret" not in b"".join(map(encode_record, image_records(controller.image)))
