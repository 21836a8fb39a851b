"""Requests to the controller that several tools have: ListPartitionReassignments and DescribeQuorum."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.base.ids import TopicPartition, by_topic
from moldau.base.topic_names import METADATA_TOPIC
from moldau.client.requests.ask import Ask
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from moldau.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)


def list_reassignments(
    ask: Ask, timeout_ms: int, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """Return the reassignments in progress: all, or those of these partitions."""
    topics = None
    if partitions is not None:
        grouped = by_topic(sorted(partitions))
        topics = [ListPartitionReassignmentsTopics(name, indexes) for name, indexes in grouped.items()]
    request = ListPartitionReassignmentsRequest(timeout_ms, topics)
    response = ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, ListPartitionReassignmentsResponse)
    return {
        TopicPartition(topic.name, each.partition_index): each for topic in response.topics for each in topic.partitions
    }


def describe_quorum(ask: Ask) -> DescribeQuorumResponse:
    request = DescribeQuorumRequest([RequestTopicData(METADATA_TOPIC, [RequestPartitionData(0)])])
    return ask(ApiKey.DESCRIBE_QUORUM, request, DescribeQuorumResponse)
