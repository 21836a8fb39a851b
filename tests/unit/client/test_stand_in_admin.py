"""The stand-in's admin client: results are matched to their topics, and timeouts."""

from __future__ import annotations

from typing import Any

import pytest
from stand_in_brokers import BOOTSTRAP, FakeBrokers

from moldau.base.errors import ErrorCode
from moldau.client import cluster
from moldau.client.stand_in.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec
from moldau.client.stand_in.values import KafkaException, TopicPartition
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
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


def test_described_configs_are_matched_to_their_topics(brokers: FakeBrokers) -> None:
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


def test_altered_configs_are_matched_to_their_topics(brokers: FakeBrokers) -> None:
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


def test_a_response_is_awaited_for_longer_than_the_broker_may_take(
    brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry of a topic's creation that was only slow would say that the topic exists already. A node that does not
    take connections is left sooner, so that there is time to ask another."""
    connects_s: list[float] = []
    requests_ms: list[int] = []
    channel = cluster.Channel

    def connect(host: str, port: int, security: Any, timeout_s: float) -> Any:
        connects_s.append(timeout_s)
        return channel(host, port)

    def create(_: int, request: Any) -> CreateTopicsResponse:
        requests_ms.append(request.timeout_ms)
        return CreateTopicsResponse(topics=[CreatableTopicResult(each.name) for each in request.topics])

    monkeypatch.setattr(cluster, "Channel", connect)
    brokers.handlers[ApiKey.CREATE_TOPICS] = create
    AdminClient({"bootstrap.servers": BOOTSTRAP}).create_topics([NewTopic("t", 10_000)])["t"].result()
    assert brokers.waits_s[0] * 1000 > requests_ms[0]
    assert connects_s == [cluster.CONNECT_SECONDS]


def test_offsets_are_not_awaited_for_longer_than_a_connection(brokers: FakeBrokers) -> None:
    """A leader that hangs must leave time to ask the next one."""
    brokers.topics["t"] = {0: 1}
    first = TopicPartition("t", 0)
    AdminClient({"bootstrap.servers": BOOTSTRAP}).list_offsets({first: OffsetSpec.latest()})[first].result()
    assert brokers.waits_s == []
