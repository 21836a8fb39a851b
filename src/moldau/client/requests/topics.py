"""CreateTopics, CreatePartitions and DeleteTopics. Each returns the results of the topics; the errors are in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from moldau.client.requests.ask import Ask
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from moldau.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


class NewTopic(NamedTuple):
    """A topic to create; -1 is the broker's default. With an assignment, which has the brokers of each partition, both
    numbers are -1."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignment: Sequence[Sequence[int]] = ()


class Growth(NamedTuple):
    """A topic that is to have this many partitions; the assignment has the brokers of each new one."""

    name: str
    partitions: int
    assignment: Sequence[Sequence[int]] | None = None


def create_topics(
    ask: Ask, topics: Iterable[NewTopic], timeout_ms: int, validate_only: bool = False
) -> Sequence[CreatableTopicResult]:
    request = create_topics_request(topics, timeout_ms, validate_only)
    return ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse).topics


def create_topics_request(
    topics: Iterable[NewTopic], timeout_ms: int, validate_only: bool = False
) -> CreateTopicsRequest:
    requested = [
        CreatableTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            [CreatableReplicaAssignment(index, brokers) for index, brokers in enumerate(topic.assignment)],
            [CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]
    return CreateTopicsRequest(requested, timeout_ms, validate_only)


def create_partitions(ask: Ask, growth: Iterable[Growth], timeout_ms: int) -> Sequence[CreatePartitionsTopicResult]:
    requested = [
        CreatePartitionsTopic(
            topic.name,
            topic.partitions,
            None if topic.assignment is None else [CreatePartitionsAssignment(brokers) for brokers in topic.assignment],
        )
        for topic in growth
    ]
    request = CreatePartitionsRequest(requested, timeout_ms)
    return ask(ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse).results


def delete_topics(
    ask: Ask, timeout_ms: int, names: Sequence[str] = (), topic_ids: Iterable[bytes] = ()
) -> Sequence[DeletableTopicResult]:
    """Delete topics by name or by id; only newer brokers know ids."""
    request = delete_topics_request(timeout_ms, names, topic_ids)
    return ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse).responses


def delete_topics_request(
    timeout_ms: int, names: Sequence[str] = (), topic_ids: Iterable[bytes] = ()
) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name) for name in names]
    states += [DeleteTopicState(None, topic_id) for topic_id in topic_ids]
    return DeleteTopicsRequest(states, names, timeout_ms)
