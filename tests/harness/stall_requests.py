"""The largest requests of clients, as frames: each names as many partitions, topics or groups as there are.

They are built with the broker's own codec: they are many, and what is measured is the broker's answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from moldau.base.errors import ErrorCode
from moldau.wire.apis import ApiKey
from moldau.wire.codec import decode
from moldau.wire.frames import request_frame
from moldau.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.wire.messages.list_groups import ListGroupsRequest
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.records import NEXT_OFFSET, Record, build_batch
from moldau.wire.schema import Message

CLIENT = "stalls"
NO_SESSION = -1
NEW_SESSION = 0
TOPIC_CONFIG = 2
FETCH_MAX_BYTES = 50 << 20
FLEXIBLE_HEADER_BYTES = 5
"""The correlation id and an empty set of tagged fields."""


def frame(api: ApiKey, version: int, message: Message) -> bytes:
    return request_frame(api, version, 1, CLIENT, message)


def create_topics(names: Sequence[str], partitions: int, configs: dict[str, str] | None = None) -> bytes:
    given = [CreatableTopicConfig(name, value) for name, value in (configs or {}).items()]
    topics = [CreatableTopic(name, partitions, 1, configs=given) for name in names]
    return frame(ApiKey.CREATE_TOPICS, 6, CreateTopicsRequest(topics, 60_000))


def delete_topics(names: Sequence[str]) -> bytes:
    return frame(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest([DeleteTopicState(name) for name in names], (), 60_000))


def set_config(topic: str, name: str, value: str) -> bytes:
    resource = AlterConfigsResource(TOPIC_CONFIG, topic, [AlterableConfig(name, 0, value)])
    return frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest([resource]))


def metadata(topics: Sequence[str] | None) -> bytes:
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return frame(ApiKey.METADATA, 12, MetadataRequest(named, False))


def fetch(topic: str, partitions: int, session_epoch: int, max_wait_ms: int = 0) -> bytes:
    named = [FetchTopic(topic=topic, partitions=[_fetched(index) for index in range(partitions)])]
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=FETCH_MAX_BYTES, session_epoch=session_epoch, topics=named
    )
    return frame(ApiKey.FETCH, 12, request)


def _fetched(index: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)


def fetch_from(topic: str, offset: int, size: int) -> bytes:
    """A fetch of one partition."""
    named = [FetchTopic(topic=topic, partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=size)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=size, session_epoch=NO_SESSION, topics=named)
    return frame(ApiKey.FETCH, 12, request)


def delete_records(topic: str, partitions: int, offset: int) -> bytes:
    named = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset) for index in range(partitions)])]
    return frame(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(named, 60_000))


def produce(topic: str, partitions: int) -> bytes:
    batch = bytes(build_batch([Record(NEXT_OFFSET, time.time_ns() // 1_000_000, None, bytes(100))]))
    named = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(n, batch) for n in range(partitions)])]
    return frame(ApiKey.PRODUCE, 9, ProduceRequest(None, 1, 60_000, named))


def commit(group: str, topic: str, partitions: int) -> bytes:
    named = [OffsetCommitRequestTopic(name=topic, partitions=[_committed(index) for index in range(partitions)])]
    return frame(ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest(group, topics=named))


def commit_code(reply: memoryview) -> ErrorCode:
    """Return the error code of the first partition in the reply to `commit`."""
    response = decode(OffsetCommitResponse, reply[FLEXIBLE_HEADER_BYTES:], 8)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def _committed(index: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(index, 1, committed_metadata="")


def find_coordinator(group: str) -> bytes:
    return frame(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[group]))


def largest(big: str, partitions: int, topics: Sequence[str], groups: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the frame of each API at its largest: `big` is the topic with so many partitions, `topics` are
    all topics, `groups` all groups."""
    count = f"{partitions:,} partitions"
    indexes = range(partitions)
    yield f"Metadata of a topic of {count}", metadata([big])
    yield f"Metadata of {len(topics):,} topics", metadata(None)
    yield f"Fetch of {count}", fetch(big, partitions, NO_SESSION)
    yield f"Fetch of {count} that waits", fetch(big, partitions, NO_SESSION, 300)
    yield f"Fetch session of {count}", fetch(big, partitions, NEW_SESSION)
    yield f"Produce to {count}", produce(big, partitions)
    yield f"Fetch of {count} with records", fetch(big, partitions, NO_SESSION)
    ends = [ListOffsetsTopic(big, [ListOffsetsPartition(index, timestamp=-1) for index in indexes])]
    yield f"ListOffsets of {count}", frame(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=ends))
    times = [ListOffsetsTopic(big, [ListOffsetsPartition(index, timestamp=1) for index in indexes])]
    yield f"ListOffsets by time of {count}", frame(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=times))
    epochs = [OffsetForLeaderTopic(big, [OffsetForLeaderPartition(index, leader_epoch=0) for index in indexes])]
    yield (
        f"OffsetForLeaderEpoch of {count}",
        frame(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, OffsetForLeaderEpochRequest(topics=epochs)),
    )
    yield f"OffsetCommit of {count}", commit(groups[0], big, partitions)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(groups[0], topics=None)])
    yield f"OffsetFetch of {count}", frame(ApiKey.OFFSET_FETCH, 8, everything)
    all_offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None) for group in groups])
    yield f"OffsetFetch of {len(groups):,} groups", frame(ApiKey.OFFSET_FETCH, 8, all_offsets)
    yield f"ListGroups of {len(groups):,}", frame(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
    yield f"DescribeGroups of {len(groups):,}", frame(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups))
    configs = [DescribeConfigsResource(TOPIC_CONFIG, name, None) for name in topics]
    yield (
        f"DescribeConfigs of {len(topics):,} topics",
        frame(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(configs)),
    )
    yield "DescribeLogDirs of everything", frame(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(None))
    producers = DescribeProducersRequest([TopicRequest(big, list(indexes))])
    yield f"DescribeProducers of {count}", frame(ApiKey.DESCRIBE_PRODUCERS, 0, producers)
    yield "AddPartitionsToTxn of 1 MiB", _add_partitions((1 << 20) - 100)
    yield f"DeleteRecords of {count}", delete_records(big, partitions, -1)


def _add_partitions(size: int) -> bytes:
    """Return a request of about `size` bytes that adds as many partitions as fit, 50,000 of each topic."""
    indexes = range((size - 200) // 4)
    parts = [indexes[first : first + 50_000] for first in range(0, len(indexes), 50_000)]
    topics = [AddPartitionsToTxnTopic(f"t{number}", list(part)) for number, part in enumerate(parts)]
    return frame(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        ),
    )
