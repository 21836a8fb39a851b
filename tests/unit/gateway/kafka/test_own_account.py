"""Names of users: that of the gateway itself, and those of tokens that say none. Nobody is taken for somebody else."""

from __future__ import annotations

import asyncio

import pytest

from moldau.gateway.kafka.accounts import KafkaAccounts, _subject_of

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="g" password="p";',
}


@pytest.mark.parametrize(("properties", "user"), [({}, "ANONYMOUS"), (SASL, "g")])
def test_the_gateway_has_the_name_of_its_user(properties: dict[str, str], user: str) -> None:
    async def name() -> str:
        accounts = KafkaAccounts("localhost:1", properties)
        try:
            return accounts.own.user
        finally:
            await accounts.close()

    assert asyncio.run(name()) == user


def test_tokens_that_do_not_say_whose_they_are_are_different_users() -> None:
    names = {_subject_of(token) for token in ("opaque-1", "opaque-2", "e30.e30.x", "e30.W10.x")}
    assert len(names) == 4
