"""Brokers without sockets: the client's channels lead to them, and they give the responses that the test chooses.

A node's port is its id. A dead node refuses connections, but stays in the metadata until it is removed from `nodes`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.client import cluster
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from moldau.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

Handler = Callable[[int, Any], Any]
BOOTSTRAP = "one:1,two:2,three:3"


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


class FakeBrokers:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes = {1, 2, 3}
        self.dead: set[int] = set()
        self.topics: dict[str, dict[int, int]] = {}
        """Partitions and their leaders, -1 where there is none."""
        self.creates: dict[str, dict[int, int]] = {}
        """The partitions that a topic gets when its creation is requested."""
        self.coordinator = 1
        self.metadata_seconds = 0.0
        """How long a metadata response takes."""
        self.handlers: dict[ApiKey, Handler] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._coordinators,
            ApiKey.OFFSET_FETCH: lambda _, request: OffsetFetchResponse(
                groups=[OffsetFetchResponseGroup(each.group_id) for each in request.groups]
            ),
            ApiKey.OFFSET_COMMIT: lambda _, request: offset_commit_response(request),
            ApiKey.LIST_OFFSETS: lambda _, request: list_offsets_response(request),
            ApiKey.FETCH: lambda _, request: fetch_response_with_first_records(request),
            ApiKey.PRODUCE: lambda _, request: produce_response(request),
        }
        self.connections: list[int] = []
        self.waits_s: list[float] = []
        """How long responses are awaited that may take longer than a connection."""
        self.received: list[tuple[int, ApiKey, Any]] = []
        monkeypatch.setattr(cluster, "Channel", lambda host, port, *_: FakeChannel(self, port))

    def requests(self, key: ApiKey) -> list[Any]:
        return [request for _, received_key, request in self.received if received_key == key]

    def _metadata(self, _: int, request: Any) -> MetadataResponse:
        time.sleep(self.metadata_seconds)
        names = list(self.topics) if request.topics is None else [each.name for each in request.topics]
        if request.allow_auto_topic_creation:
            self.topics |= {name: self.creates[name] for name in names if name in self.creates}
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node, "host", node) for node in self.nodes],
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader)
            for index, leader in self.topics[name].items()
        ]
        return MetadataResponseTopic(ErrorCode.NONE, name, topic_id(name), partitions=partitions)

    def _coordinators(self, _: int, request: Any) -> FindCoordinatorResponse:
        node = self.coordinator
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key, node, "host", node) for key in request.coordinator_keys]
        )


class FakeChannel:
    def __init__(self, brokers: FakeBrokers, node: int) -> None:
        self._brokers = brokers
        self._node = node
        self._sent: deque[tuple[ApiKey, Any]] = deque()
        brokers.connections.append(node)
        self._check()

    @property
    def in_flight(self) -> int:
        return len(self._sent)

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        self._brokers.waits_s.append(seconds)
        yield

    def offers(self, key: ApiKey) -> bool:
        return key in self._brokers.handlers

    def ask(self, key: ApiKey, request: Any, answer: Any, versions: Any = None) -> Any:
        self.send(key, request)
        return self.receive(answer)

    def send(self, key: ApiKey, request: Any) -> None:
        self._check()
        self._brokers.received.append((self._node, key, request))
        self._sent.append((key, request))

    def receive(self, answer: Any) -> Any:
        key, request = self._sent.popleft()
        self._check()
        return self._brokers.handlers[key](self._node, request)

    def close(self) -> None:
        pass

    def _check(self) -> None:
        if self._node in self._brokers.dead:
            time.sleep(5)
            raise ConnectionRefusedError(f"node {self._node} is dead")


def offset_commit_response(request: Any, code: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def produce_response(request: Any, code: ErrorCode = ErrorCode.NONE) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                topic.topic_id,
                topic.name,
                [PartitionProduceResponse(each.index, code, base_offset=0) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def heartbeat_response(epoch: int, given: dict[str, list[int]] | None = None) -> ConsumerGroupHeartbeatResponse:
    """Return a heartbeat response with an assignment, or without one if nothing changes."""
    if given is None:
        return ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=0)
    topics = [ResponseTopicPartitions(topic_id(name), indexes) for name, indexes in given.items()]
    return ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=0, assignment=Assignment(topics))


def heartbeat_error(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


def list_offsets_response(request: Any) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [ListOffsetsPartitionResponse(each.partition_index, offset=0) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def fetch_response_with_first_records(request: Any) -> FetchResponse:
    """Return a fetch response in which every partition has one record, whose value is the partition index."""
    if all(each.fetch_offset for topic in request.topics for each in topic.partitions):
        time.sleep(request.max_wait_ms / 1000)
    return fetch_response(
        request,
        lambda each: batch_with_one_record(each.partition, each.fetch_offset) if each.fetch_offset == 0 else None,
    )


def fetch_response(request: Any, records: Callable[[Any], memoryview | None]) -> FetchResponse:
    def data(each: Any) -> PartitionData:
        return PartitionData(each.partition, high_watermark=1, last_stable_offset=1, records=records(each))

    return FetchResponse(
        responses=[
            FetchableTopicResponse(topic.topic_id, topic.topic, [data(each) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def batch_with_one_record(number: int, offset: int) -> memoryview:
    """Return a batch with one record at this offset."""
    return memoryview(bytes(build_batch([Record(NEXT_OFFSET, 0, None, b"%d" % number, ())], base_offset=offset)))
