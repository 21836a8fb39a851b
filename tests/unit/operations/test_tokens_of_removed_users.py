"""What is said about the delegation tokens of a user who is removed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.next_steps import worded
from moldau.operations.tokens import tokens_note
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.principals import USER, Principal

NOW_MS = 1_800_000_000_000
ANN, BOB = Principal(USER, "ann"), Principal(USER, "bob")


def note(*tokens: DelegationToken) -> str | None:
    described: Any = SimpleNamespace(describe=lambda owners: [SimpleNamespace(token=token) for token in tokens])
    found = tokens_note("ann", described, NOW_MS)
    return None if found is None else worded(found)


def token(owner: Principal, valid_ms: int, *renewers: Principal) -> DelegationToken:
    return DelegationToken("id", owner, owner, renewers, 0, NOW_MS + 10**9, NOW_MS + valid_ms)


def test_valid_tokens_are_counted() -> None:
    assert note() is None
    assert note(token(ANN, -1), token(BOB, 9_000, ANN)) is None, "expired, or owned by another user"
    one = note(token(ANN, 5_000), token(ANN, -1))
    assert one is not None
    assert one.startswith("1 delegation token of ann can be used until 2027-01-15T08:00:05Z")
    two = note(token(ANN, 5_000), token(ANN, 7_000))
    assert two is not None
    assert two.startswith("2 delegation tokens of ann")
    assert "until 2027-01-15T08:00:07Z" in two
    assert "kafka-delegation-tokens.sh --expire" in two


@pytest.mark.parametrize(
    ("code", "is_mentioned"),
    [(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, False), (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, True)],
)
def test_tokens_that_the_broker_does_not_describe(code: ErrorCode, is_mentioned: bool) -> None:
    def describe(owners: object) -> Any:
        raise KafkaError(code)

    described: Any = SimpleNamespace(describe=describe)
    found = tokens_note("ann", described, NOW_MS)
    assert (found is not None and "if there are any" in found.text) is is_mentioned
