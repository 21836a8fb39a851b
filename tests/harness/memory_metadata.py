"""What the cluster in memory answers to requests about metadata: one broker with the id 1 leads everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from moldau.base.errors import ErrorCode
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.wire.schema import Message

CLUSTER_ID = "cluster-in-memory"


class Topics(Protocol):
    @property
    def partition_counts(self) -> Mapping[str, int]: ...

    def create_topic(self, name: str, partitions: int = 1) -> object: ...

    def delete_topic(self, name: str) -> None: ...


def answer(topics: Topics, request: Message) -> Any:
    """Return the response to a request."""
    match request:
        case MetadataRequest():
            names = topics.partition_counts if request.topics is None else [each.name or "" for each in request.topics]
            brokers = [MetadataResponseBroker(1, "localhost", 9092)]
            return MetadataResponse(0, brokers, CLUSTER_ID, 1, [_topic(topics, name) for name in names])
        case DescribeConfigsRequest():
            return DescribeConfigsResponse(0, [_configs(topics, each.resource_name) for each in request.resources])
        case CreateTopicsRequest():
            return CreateTopicsResponse(0, [_created(topics, request, each) for each in request.topics])
        case DeleteTopicsRequest():
            return DeleteTopicsResponse(0, [_deleted(topics, name) for name in request.topic_names])
    raise AssertionError(f"no answer to {ApiKey(request.API_KEY).name}")


def _topic(topics: Topics, name: str) -> MetadataResponseTopic:
    if name not in topics.partition_counts:
        return MetadataResponseTopic(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)
    indexes = range(topics.partition_counts[name])
    partitions = [MetadataResponsePartition(0, index, 1, 0, [1], [1]) for index in indexes]
    return MetadataResponseTopic(0, name, bytes(16), False, partitions)


def _configs(topics: Topics, name: str) -> DescribeConfigsResult:
    if name not in topics.partition_counts:
        return DescribeConfigsResult(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None, 2, name)
    return DescribeConfigsResult(0, None, 2, name, [DescribeConfigsResourceResult("cleanup.policy", "delete")])


def _created(topics: Topics, request: CreateTopicsRequest, topic: Any) -> CreatableTopicResult:
    if topic.name in topics.partition_counts:
        code = int(ErrorCode.TOPIC_ALREADY_EXISTS)
        return CreatableTopicResult(topic.name, error_code=code, error_message=f"Topic '{topic.name}' already exists.")
    count = max(1, topic.num_partitions, len(topic.assignments))
    if not request.validate_only:
        topics.create_topic(topic.name, count)
    return CreatableTopicResult(topic.name, num_partitions=count, replication_factor=1)


def _deleted(topics: Topics, name: str) -> DeletableTopicResult:
    if name not in topics.partition_counts:
        return DeletableTopicResult(name, error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    topics.delete_topic(name)
    return DeletableTopicResult(name)
