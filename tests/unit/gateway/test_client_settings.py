"""The settings with which librdkafka logs in as each kind of user."""

from __future__ import annotations

import base64
import json
import time

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.kafka.client_settings import claims, client_settings
from moldau.security.sasl.client import ClientLogin

PROPERTIES = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "gateway",
    "sasl.password": "its own",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "ca.pem",
    "ssl.principal.mapping.rules": "DEFAULT",
}
REACH = {"bootstrap.servers": "kafka:9092", "security.protocol": "SASL_SSL", "ssl.ca.location": "ca.pem"}


def token(**said: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"


def test_a_user_has_the_own_password_and_nothing_of_the_gateways_login() -> None:
    login = ClientLogin("SCRAM-SHA-256", "anna", "secret")
    assert client_settings("kafka:9092", PROPERTIES, login) == {
        **REACH,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "anna",
        "sasl.password": "secret",
    }
    assert client_settings("kafka:9092", {}, None) == {"bootstrap.servers": "kafka:9092"}


def test_a_token_lasts_as_long_as_it_says() -> None:
    tokens = [token(sub="anna", exp=2_000_000_000), token(sub="anna")]
    login = ClientLogin("OAUTHBEARER", "anna", token=lambda: tokens.pop(0), extensions=(("cluster", "a"),))
    settings = client_settings("kafka:9092", PROPERTIES, login)
    current = settings.pop("oauth_cb")
    assert settings == {**REACH, "sasl.mechanism": "OAUTHBEARER"}
    assert current("") == (token(sub="anna", exp=2_000_000_000), 2_000_000_000, "anna", {"cluster": "a"})
    assert current("")[1] > time.time()


def test_a_delegation_token_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        client_settings("kafka:9092", PROPERTIES, ClientLogin("SCRAM-SHA-256", "id", "hmac", by_token=True))
    assert refused.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize("text", ["", "a.b", "a.W10.c", "a.%%%.c", "a." + "W" * 20_001 + ".c"])
def test_a_token_that_cannot_be_read_says_nothing(text: str) -> None:
    assert claims(text) == {}
