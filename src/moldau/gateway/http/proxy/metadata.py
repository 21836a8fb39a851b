"""What the calls need to know of the cluster: its topics, their partitions and configs, its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.requests.configs import TOPIC, describe_configs_request
from moldau.client.requests.metadata import metadata_request
from moldau.gateway.http.proxy.failures import topic_not_found
from moldau.gateway.ports import Account
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_configs import DescribeConfigsResponse
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


async def metadata(account: Account, names: Iterable[str] | None) -> MetadataResponse:
    """Return the brokers and these topics, or all."""
    response: MetadataResponse = await account.ask(ApiKey.METADATA, metadata_request(names))
    return response


async def found_topic(account: Account, name: str) -> MetadataResponseTopic:
    """Return a topic. ProxyError if there is none, KafkaError if the user may not see it."""
    (topic,) = (await metadata(account, [name])).topics
    if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        raise topic_not_found(name)
    if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        raise KafkaError(ErrorCode(topic.error_code), f"topic {name}: {ErrorCode(topic.error_code).name}")
    return topic


def partitions_of(topic: MetadataResponseTopic) -> Sequence[MetadataResponsePartition]:
    return sorted(topic.partitions, key=lambda each: each.partition_index)


async def topic_configs(account: Account, name: str) -> dict[str, str | None]:
    """Return the configs of a topic; nothing if the user may not see them."""
    request = describe_configs_request(TOPIC, [name])
    response: DescribeConfigsResponse = await account.ask(ApiKey.DESCRIBE_CONFIGS, request)
    configs: dict[str, Any] = {}
    for result in response.results:
        code = ErrorCode(result.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            raise KafkaError(code, result.error_message)
        configs |= {entry.name: None if entry.is_sensitive else entry.value for entry in result.configs}
    return configs
