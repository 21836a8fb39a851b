"""Metadata, DescribeCluster and DescribeTopicPartitions: the nodes of a cluster and its topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from moldau.client.requests.ask import Ask
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from moldau.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    RequestCursor,
    TopicRequest,
)
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

BROKERS: Final = 1
CONTROLLERS: Final = 2
"""DescribeCluster's endpoint types."""


def metadata(ask: Ask, names: Iterable[str] | None = None, create: bool = False) -> MetadataResponse:
    """Return the brokers and these topics, or all. With `create`, a broker may create those that do not exist."""
    return ask(ApiKey.METADATA, metadata_request(names, create), MetadataResponse)


def metadata_request(names: Iterable[str] | None, create: bool = False) -> MetadataRequest:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def described_cluster(
    ask: Ask, endpoint_type: int = BROKERS, fenced_too: bool = False, permitted_operations: bool = False
) -> DescribeClusterResponse:
    request = DescribeClusterRequest(permitted_operations, endpoint_type, fenced_too)
    return ask(ApiKey.DESCRIBE_CLUSTER, request, DescribeClusterResponse)


def topic_partitions(ask: Ask, names: Iterable[str], limit: int) -> Iterator[DescribeTopicPartitionsResponseTopic]:
    """Yield these topics, page by page: each response has at most `limit` partitions. A topic may be in several."""
    topics = [TopicRequest(name) for name in sorted(names)]
    cursor: RequestCursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(topics, limit, cursor)
        page = ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, DescribeTopicPartitionsResponse)
        yield from page.topics
        if page.next_cursor is None:
            return
        cursor = RequestCursor(page.next_cursor.topic_name, page.next_cursor.partition_index)
        topics = [topic for topic in topics if topic.name >= cursor.topic_name]
