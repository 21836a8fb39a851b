"""Delegation tokens for Spark tasks: which tokens are used, and how a token replaces the user's login."""

from __future__ import annotations

import pytest

from moldau.client.admin.delegation_tokens import TokenWithHmac
from moldau.client.properties import security
from moldau.client.token_login import is_fresh, is_own, with_token
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.principals import Principal
from moldau.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from moldau.spark.delegation import TaskLogin
from moldau.spark.options import read_options, write_options

ANN, BOB = Principal("User", "ann"), Principal("User", "bob")
LOGIN = {"sasl.username": "ann", "sasl.password": "pw-ann"}


def token(owner: Principal = ANN, requester: Principal = ANN, renewers: tuple[Principal, ...] = ()) -> DelegationToken:
    return DelegationToken("t0ken", owner, requester, renewers, issued_ms=1000, max_ms=9000, expires_ms=3000)


def test_a_token_is_fresh_for_half_of_its_lifetime() -> None:
    assert is_fresh(token(), 1000)
    assert is_fresh(token(), 1999)
    assert not is_fresh(token(), 2000)
    assert not is_fresh(token(), 5000)


def test_a_renewed_token_is_not_used_beyond_its_max_lifetime() -> None:
    renewed = token()._replace(max_ms=4000, expires_ms=6000)
    assert is_fresh(renewed, 2499)
    assert not is_fresh(renewed, 2500)


def test_tokens_with_another_owner_requester_or_renewer_are_not_used() -> None:
    assert is_own(token(), ANN)
    assert not is_own(token(owner=BOB), ANN)
    assert not is_own(token(requester=BOB), ANN)
    assert not is_own(token(renewers=(BOB,)), ANN)


@pytest.mark.parametrize(
    ("given", "mechanism"),
    [
        ({"sasl.mechanism": "SCRAM-SHA-256", **LOGIN}, "SCRAM-SHA-256"),
        ({"sasl.mechanisms": "PLAIN", **LOGIN}, "SCRAM-SHA-512"),
        (
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PLAIN_MODULE} required username="ann" password="pw-ann";',
            },
            "SCRAM-SHA-512",
        ),
    ],
)
def test_the_token_replaces_the_login(given: dict[str, str], mechanism: str) -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "client.id": "spark", **given}
    made = with_token(properties, TokenWithHmac(token(), b"\1\2\3"))
    assert "pw-ann" not in str(made)
    assert made.keys() == {"security.protocol", "client.id", "sasl.mechanism", "sasl.jaas.config"}
    login = security(made).login
    assert login is not None
    assert (login.mechanism, login.user, login.password, login.by_token) == (mechanism, "t0ken", "AQID", True)
    assert "AQID" not in repr(TaskLogin(made))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "OAUTHBEARER",
         "kafka.sasl.oauthbearer.token.endpoint.url": "file:///token"},
        {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-256",
         "kafka.sasl.jaas.config": f'{SCRAM_MODULE} required username="t" password="h" tokenauth="true";'},
    ],
)  # fmt: skip
def test_delegation_tokens_require_a_login_with_a_password(given: dict[str, str]) -> None:
    options = {"kafka.bootstrap.servers": "localhost:9092", "delegationToken": "true", **given}
    for parse in (lambda: read_options({**options, "subscribe": "t"}, is_stream=None), lambda: write_options(options)):
        with pytest.raises(ValueError, match="delegationToken=true needs a driver that logs in with a password"):
            parse()
    assert not write_options({**options, "delegationToken": "false"}).delegation_token
