"""The stand-in's admin client: which result is whose."""

from __future__ import annotations

from typing import Any

import pytest
from stand_in_brokers import BOOTSTRAP, FakeBrokers

from moldau.base.errors import ErrorCode
from moldau.client.stand_in.admin import AdminClient, ConfigResource
from moldau.client.stand_in.values import KafkaException
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from moldau.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

TOPIC = ConfigResource.Type.TOPIC
REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def authorized_first(resources: Any) -> list[tuple[str, int]]:
    """Names and errors in the order of Apache Kafka: what the user may not see comes last."""
    return sorted(((each.resource_name, REFUSED * (each.resource_name == "secret")) for each in resources), key=_error)


def _error(result: tuple[str, int]) -> int:
    return result[1]


def test_configs_are_those_of_their_topic(brokers: FakeBrokers) -> None:
    brokers.handlers[ApiKey.DESCRIBE_CONFIGS] = lambda _, request: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(code, None, TOPIC, name, [DescribeConfigsResourceResult("of", name)])
            for name, code in authorized_first(request.resources)
        ]
    )
    secret, orders = ConfigResource(TOPIC, "secret"), ConfigResource(TOPIC, "orders")
    futures = AdminClient({"bootstrap.servers": BOOTSTRAP}).describe_configs([secret, orders])
    assert futures[orders].result()["of"].value == "orders"
    with pytest.raises(KafkaException):
        futures[secret].result()


def test_changes_of_configs_are_those_of_their_topic(brokers: FakeBrokers) -> None:
    brokers.handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda _, request: IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(code, None, TOPIC, name) for name, code in authorized_first(request.resources)
        ]
    )
    secret, orders = ConfigResource(TOPIC, "secret"), ConfigResource(TOPIC, "orders")
    futures = AdminClient({"bootstrap.servers": BOOTSTRAP}).incremental_alter_configs([secret, orders])
    assert futures[orders].result() is None
    with pytest.raises(KafkaException):
        futures[secret].result()
