"""Who the gateway itself is: the user of its properties, so that no other user of the cluster is taken for it."""

from __future__ import annotations

import asyncio

import pytest

from moldau.gateway.kafka.accounts import KafkaAccounts

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
