"""ListOffsets and DeleteRecords, which the leader of a partition answers, and DescribeLogDirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.requests.ask import Ask, error_of
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LIST_OFFSETS_TIMEOUT_MS: Final = 10_000
"""How long a broker may look for an offset in remote storage; Moldau has none and does not wait."""


def list_offsets(
    ask: Ask,
    timestamps: Mapping[TopicPartition, int],
    read_committed: bool = False,
    timeout_ms: int = LIST_OFFSETS_TIMEOUT_MS,
) -> dict[TopicPartition, int | KafkaError]:
    """Ask a leader for the offset at its timestamp of each of its partitions; return the offset or error of each."""
    request = list_offsets_request(timestamps, read_committed, timeout_ms)
    return listed_offsets(ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse))


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int],
    read_committed: bool = False,
    timeout_ms: int = LIST_OFFSETS_TIMEOUT_MS,
) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(
            name, [ListOffsetsPartition(index, -1, timestamps[TopicPartition(name, index)]) for index in indexes]
        )
        for name, indexes in by_topic(timestamps).items()
    ]
    return ListOffsetsRequest(-1, int(read_committed), topics, timeout_ms)


def listed_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, int | KafkaError]:
    """Return the offset or error of each partition."""
    return {
        TopicPartition(topic.name, each.partition_index): error_of(each.error_code) or each.offset
        for topic in response.topics
        for each in topic.partitions
    }


def delete_records(
    ask: Ask, before: Mapping[TopicPartition, int], timeout_ms: int
) -> dict[TopicPartition, int | KafkaError]:
    """Ask a leader to delete the records of its partitions before these offsets; return the new start of each log, or
    its error."""
    topics = [
        DeleteRecordsTopic(
            name, [DeleteRecordsPartition(index, before[TopicPartition(name, index)]) for index in indexes]
        )
        for name, indexes in by_topic(before).items()
    ]
    request = DeleteRecordsRequest(topics, timeout_ms)
    return {
        TopicPartition(topic.name, each.partition_index): error_of(each.error_code) or each.low_watermark
        for topic in ask(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse).topics
        for each in topic.partitions
    }


def describe_log_dirs(ask: Ask, partitions: Iterable[TopicPartition] | None = None) -> DescribeLogDirsResponse:
    """Ask a broker for its log directories, with these partitions or all."""
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(name, indexes) for name, indexes in by_topic(partitions).items()]
    return ask(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics), DescribeLogDirsResponse)
