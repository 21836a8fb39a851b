"""Delegation tokens: their HMACs compared with Python's own, their owners and renewers, and when they end."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterator
from random import Random

import pytest

from moldau.base.ids import uuid_text
from moldau.security.delegation_tokens import DelegationToken, TokenHmacs, may_use_tokens
from moldau.security.principals import ANONYMOUS, Principal
from moldau.security.token_settings import TokenSettings
from moldau.settings import from_properties
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenResponse

ANN, BOB, EVE = (Principal("User", name) for name in ("ann", "bob", "eve"))


def token(
    token_id: str = "id", renewers: tuple[Principal, ...] = (), max_ms: int = 100, expires_ms: int = 50
) -> DelegationToken:
    return DelegationToken(token_id, ANN, ANN, renewers, 0, max_ms, expires_ms)


@pytest.mark.parametrize("key", ["secret", "ü ñ", "x" * 500])
def test_the_hmac_is_hmac_sha_512_of_the_token_id(key: str) -> None:
    for seed in range(20):
        token_id = uuid_text(Random(seed).randbytes(16))
        expected = hmac.new(key.encode(), token_id.encode(), hashlib.sha512).digest()
        assert TokenHmacs(key).hmac(token_id) == expected


def test_the_hmac_equals_apache_kafkas() -> None:
    """A token that a broker of Kafka 4.3.1 created."""
    hmac_text = "iVAA4Q0oTW7KiJiC7H+8ECMu6CRPwCGr96r6/+7rybZZGITADUSFQf34CHQz1Zlzcl20L1g4l7a+WRnNpqsl7A=="
    assert b64encode(TokenHmacs("k").hmac("O4WiRbVnTmWk-exbfuY_nQ")).decode() == hmac_text


class CountingDict(dict[str, DelegationToken]):
    scans = 0

    def __iter__(self) -> Iterator[str]:
        self.scans += 1
        return super().__iter__()


def test_tokens_are_found_by_their_hmacs() -> None:
    hmacs = TokenHmacs("secret")
    tokens = CountingDict({name: token(name) for name in ("a", "b")})
    for _ in range(3):
        assert hmacs.find(tokens, hmacs.hmac("a")) == tokens["a"]
        assert hmacs.find(tokens, hmacs.hmac("c")) is None
        assert hmacs.find(tokens, b"") is None
    assert tokens.scans == 1
    later = CountingDict({"b": token("b", (BOB,)), "c": token("c")})
    assert hmacs.find(later, hmacs.hmac("a")) is None
    assert hmacs.find(later, hmacs.hmac("b")) == later["b"]
    assert hmacs.find(later, hmacs.hmac("c")) == later["c"]
    assert later.scans == 1
    assert hmacs.find(later, TokenHmacs("other").hmac("c")) is None


def test_a_token_belongs_to_its_owner_and_renewers() -> None:
    shared = token(renewers=(BOB,))
    assert [shared.belongs_to(each) for each in (ANN, BOB, EVE)] == [True, True, False]
    assert shared.belongs_to(ANN._replace(by_token=True))
    assert not shared.belongs_to(Principal("Group", "ann"))


@pytest.mark.parametrize(
    ("max_ms", "expires_ms", "left_ms"), [(100, 50, 40), (50, 100, 40), (100, 9, -1), (9, 100, -1)]
)
def test_a_token_ends_at_the_earlier_of_expiry_and_maximum(max_ms: int, expires_ms: int, left_ms: int) -> None:
    assert token(max_ms=max_ms, expires_ms=expires_ms).lifetime_ms(10) == left_ms


def test_anonymous_and_token_clients_may_not_use_tokens() -> None:
    assert may_use_tokens(ANN)
    assert not may_use_tokens(ANONYMOUS)
    assert not may_use_tokens(ANN._replace(by_token=True))


def test_token_settings_are_read() -> None:
    off = from_properties({}).delegation_tokens
    assert (off.is_enabled, off.lifetime_ms_max, off.expiry_time_ms, off.check_interval_ms) == (
        False,
        7 * 86_400_000,
        86_400_000,
        3_600_000,
    )
    assert not from_properties({"delegation.token.secret.key": ""}).delegation_tokens.is_enabled
    settings = from_properties({"delegation.token.secret.key": "t0p", "delegation.token.expiry.time.ms": "5"})
    assert settings.delegation_tokens == TokenSettings("t0p", 7 * 86_400_000, 5, 3_600_000)
    assert "t0p" not in repr(settings)
    assert not [line for line in settings.warnings if "delegation" in line]


def test_hmacs_are_not_shown() -> None:
    assert "p4ss" not in repr(CreateDelegationTokenResponse(hmac=b"p4ss"))
