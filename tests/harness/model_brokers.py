"""Brokers in memory behind the gateway's connections: they answer Metadata, InitProducerId, Produce and Fetch as
objects, from logs with Kafka's rules, and lose, delay and refuse requests as a test says.

    cluster = ModelCluster(telemetry=3)
    producer = Producer(cluster.brokers(), room)        # on a VirtualLoop
    cluster.faults.append(Fault.LOST_AFTER)             # of the next Produce request
    cluster.refusals["telemetry", 0].append(Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, is_appended=True))
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict, deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple

from harness.idempotent_log import IdempotentLog
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.client.peer_connections import PeerConnection, PeerConnections
from moldau.gateway.kafka.brokers import Brokers, Reach
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.wire.messages.init_producer_id import InitProducerIdResponse
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.wire.schema import Message

LATENCY_S = 0.002
LATE_S = 3.0
NOBODY = -1


class Fault(Enum):
    """What becomes of a request."""

    NONE = auto()
    LOST_BEFORE = auto()
    """The connection breaks before the broker has read it."""
    LOST_AFTER = auto()
    """The connection breaks before the answer."""
    LATE = auto()
    """The connection breaks, and the broker reads the request seconds later."""
    SILENT = auto()
    """The broker does what it is asked and does not answer."""
    FROZEN = auto()
    """The broker does nothing."""
    GARBAGE = auto()
    """The answer has other partitions than the request."""


class Refusal(NamedTuple):
    code: ErrorCode
    is_appended: bool = False


class ModelCluster:
    def __init__(self, nodes: int = 3, **partitions: int) -> None:
        self.nodes = set(range(1, nodes + 1))
        self.down: set[int] = set()
        self.logs: dict[TopicPartition, IdempotentLog] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.shown: dict[TopicPartition, int] = {}
        """What metadata has in place of the leader."""
        self.faults: deque[Fault] = deque()
        """Of the next requests of `faulty`."""
        self.faulty: set[ApiKey] = {ApiKey.PRODUCE}
        self.refusals: defaultdict[tuple[str, int], deque[Refusal]] = defaultdict(deque)
        """Of the next batches of a partition."""
        self.topic_errors: dict[str, ErrorCode] = {}
        """In metadata."""
        self.producer_id_errors: deque[ErrorCode] = deque()
        self.choose_fault: Callable[[ApiKey], Fault] = lambda api: self.faults.popleft() if self.faults else Fault.NONE
        self.throttle_ms = 0
        self.fetch_bytes_max = 1 << 20
        """Of a response: partitions that come later in the request get nothing if it is full."""
        self.requests: list[tuple[int, ApiKey]] = []
        """Those that arrived, and where."""
        self.batches: list[tuple[TopicPartition, bytes]] = []
        self.connections = 0
        self._producer_id = 0
        self._appended = asyncio.Event()
        for name, count in partitions.items():
            self.create_topic(name, count)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or add partitions to it."""
        for index in range(partitions):
            partition = TopicPartition(name, index)
            self.logs.setdefault(partition, IdempotentLog())
            self.leaders.setdefault(partition, 1 + index % len(self.nodes))

    def delete_topic(self, name: str) -> None:
        for partition in [each for each in self.logs if each.topic == name]:
            del self.logs[partition], self.leaders[partition]
        self._wake()

    def move(self, topic: str, partition: int, node: int) -> None:
        self.leaders[TopicPartition(topic, partition)] = node

    def brokers(self) -> Brokers:
        addresses = tuple((f"node{node}", 9092) for node in sorted(self.nodes))
        return Brokers(Reach(addresses, None, self.peers), None)

    def peers(self, loop: asyncio.AbstractEventLoop, tls: Callable[[], ssl.SSLContext] | None) -> PeerConnections:
        return _ModelPeers(self, loop)

    # --- answers ----------------------------------------------------------------------------------------------------

    def answer(self, node: int, api: ApiKey, request: Any) -> Message | None:
        """Return the response; None if it comes later, as that of a fetch without records."""
        self.requests.append((node, api))
        match api:
            case ApiKey.METADATA:
                return self._metadata(request)
            case ApiKey.INIT_PRODUCER_ID:
                return self._init_producer_id()
            case ApiKey.PRODUCE:
                return self._produce(node, request)
            case ApiKey.FETCH:
                return self._fetch(node, request)
        raise AssertionError(f"the model has no {api.name}")

    def write(self, partition: TopicPartition, batch: bytes) -> None:
        """Append a batch of another producer."""
        self.logs[partition].write(batch)
        self._wake()

    def _wake(self) -> None:
        self._appended.set()
        self._appended = asyncio.Event()

    async def appended(self) -> None:
        """Wait for the next batch."""
        await self._appended.wait()

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node, f"node{node}", 9092) for node in sorted(self.nodes - self.down)]
        topics = [self._topic(topic.name or "") for topic in request.topics or ()]
        return MetadataResponse(brokers=brokers, topics=topics)

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(partition_index=each.partition, leader_id=self.shown.get(each, leader))
            for each, leader in self.leaders.items()
            if each.topic == name
        ]
        missing = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = self.topic_errors.get(name, missing)
        return MetadataResponseTopic(code, name, topic_id(name), partitions=() if code else partitions)

    def _init_producer_id(self) -> InitProducerIdResponse:
        if self.producer_id_errors:
            return InitProducerIdResponse(error_code=self.producer_id_errors.popleft(), producer_id=-1)
        self._producer_id += 1
        return InitProducerIdResponse(producer_id=self._producer_id, producer_epoch=0)

    def _produce(self, node: int, request: ProduceRequest) -> ProduceResponse:
        assert request.acks == -1
        responses = []
        for topic in request.topic_data:
            partitions = [
                self._append(node, TopicPartition(topic.name, each.index), bytes(each.records or b""))
                for each in topic.partition_data
            ]
            responses.append(TopicProduceResponse(topic.topic_id, topic.name, partitions))
        self._wake()
        return ProduceResponse(responses, throttle_time_ms=self.throttle_ms)

    def _append(self, node: int, partition: TopicPartition, batch: bytes) -> PartitionProduceResponse:
        self.batches.append((partition, batch))
        if self.leaders.get(partition) != node:
            return PartitionProduceResponse(partition.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        refusals = self.refusals[partition]
        refusal = refusals.popleft() if refusals else None
        if refusal is not None and not refusal.is_appended:
            return PartitionProduceResponse(partition.partition, refusal.code, -1)
        try:
            base_offset = self.logs[partition].append(batch)
        except KafkaError as error:
            return PartitionProduceResponse(partition.partition, error.code, -1, error_message=error.message)
        if refusal is not None:
            return PartitionProduceResponse(partition.partition, refusal.code, -1)
        return PartitionProduceResponse(partition.partition, 0, base_offset)

    def _fetch(self, node: int, request: FetchRequest) -> FetchResponse | None:
        responses = []
        has_something, left = False, self.fetch_bytes_max
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                data = self._fetched(node, TopicPartition(topic.topic, each.partition), each.fetch_offset)
                has_something |= bool(data.error_code or data.records)
                if left <= 0:
                    data.records = None
                left -= len(data.records or b"")
                partitions.append(data)
            responses.append(FetchableTopicResponse(topic.topic_id, topic.topic, partitions))
        return FetchResponse(responses=responses) if has_something else None

    def _fetched(self, node: int, partition: TopicPartition, offset: int) -> PartitionData:
        log = self.logs.get(partition)
        if log is None:
            return PartitionData(partition.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.leaders[partition] != node:
            return PartitionData(partition.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        end = len(log.records)
        if not 0 <= offset <= end:
            return PartitionData(partition.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        return PartitionData(partition.partition, 0, end, end, 0, records=memoryview(log.batches_from(offset)))


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


class _ModelPeers(PeerConnections):
    def __init__(self, cluster: ModelCluster, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._cluster = cluster

    def _connection(self, host: str, port: int, purpose: str) -> PeerConnection:
        self._cluster.connections += 1
        return _ModelConnection(self._cluster, self._loop, host, port, purpose)


class _ModelConnection(PeerConnection):
    """Answers in the order of the requests, each after a moment."""

    def __init__(
        self, cluster: ModelCluster, loop: asyncio.AbstractEventLoop, host: str, port: int, purpose: str
    ) -> None:
        super().__init__(loop, host, port, purpose, lambda line: None)
        self._cluster = cluster
        self._node = int(host.removeprefix("node"))
        self._promises: set[Promise[Any]] = set()

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        self._promises.add(promise)
        if self.is_closed or self._node in self._cluster.down:
            self._lose(promise)
        else:
            fault = self._cluster.choose_fault(api) if api in self._cluster.faulty else Fault.NONE
            self._loop.create_task(self._serve(promise, api, request, timeout_ms / 1_000, fault))
        return promise

    def close(self) -> None:
        self.is_closed = True
        for promise in list(self._promises):
            self._lose(promise)

    async def _serve(
        self, promise: Promise[Any], api: ApiKey, request: Message, timeout_s: float, fault: Fault
    ) -> None:
        deadline = self._loop.time() + timeout_s
        await asyncio.sleep(LATENCY_S)
        match fault:
            case Fault.LOST_BEFORE:
                self._lose(promise)
                return
            case Fault.LATE:
                self._lose(promise)
                await asyncio.sleep(LATE_S)
            case Fault.FROZEN:
                await self._time_out(promise, deadline)
                return
        response = self._cluster.answer(self._node, api, request)
        while response is None and self._loop.time() < deadline:
            response = await self._later(api, request)
        match fault:
            case Fault.LOST_AFTER:
                self._lose(promise)
            case Fault.SILENT:
                await self._time_out(promise, deadline)
            case Fault.GARBAGE:
                self._answer(promise, ProduceResponse())
            case Fault.NONE:
                await asyncio.sleep(LATENCY_S + self._cluster.throttle_ms / 1_000)
                self._answer(promise, response)

    async def _later(self, api: ApiKey, request: Any) -> Message | None:
        """Wait as a leader does to whom no records were appended yet."""
        try:
            await asyncio.wait_for(self._cluster.appended(), request.max_wait_ms / 1_000)
        except TimeoutError:
            return FetchResponse()
        return self._cluster.answer(self._node, api, request)

    async def _time_out(self, promise: Promise[Any], deadline: float) -> None:
        await asyncio.sleep(deadline - self._loop.time())
        self._answer(promise, KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self}: no response in time"))

    def _lose(self, promise: Promise[Any]) -> None:
        error = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self}: the connection is lost")
        self._loop.call_soon(self._answer, promise, error)

    def _answer(self, promise: Promise[Any], response: Any) -> None:
        if promise in self._promises:
            self._promises.discard(promise)
            promise.complete(response)
