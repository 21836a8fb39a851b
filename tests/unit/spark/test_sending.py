"""A producer's requests in flight while connections are lost, leaders move and brokers reject batches."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Topic
from moldau.spark import sending
from moldau.spark.options import WriteOptions, write_options
from moldau.spark.sending import IN_FLIGHT_MAX, RecordBatch, Sending
from moldau.wire.apis import ApiKey
from moldau.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse

A, B = 1, 2
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = bytes(range(16))


class Node:
    """A broker that writes what it gets and drops what it already has, as a broker does for an idempotent producer."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.rejects_with: int = ErrorCode.NONE

    def write(self, request: ProduceRequest) -> ProduceResponse:
        results = []
        for partition in request.topic_data[0].partition_data:
            assert partition.records is not None
            if not self.rejects_with and bytes(partition.records) not in self.written:
                self.written.append(bytes(partition.records))
            results.append(PartitionProduceResponse(partition.index, self.rejects_with))
        return ProduceResponse([TopicProduceResponse(TOPIC_ID, partition_responses=results)])


class ModelChannel:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._responses: deque[ProduceResponse] = deque()
        self.is_lossy = False
        """Whether requests get lost on their way."""
        self.is_closed = False

    def send(self, key: ApiKey, request: ProduceRequest, versions: tuple[int, int] | None = None) -> None:
        if self.is_closed:
            raise OSError("Bad file descriptor")
        if not self.is_lossy:
            self._responses.append(self._node.write(request))

    def send_unanswered(self, key: ApiKey, request: ProduceRequest) -> None:
        self.send(key, request)
        self._responses.pop()

    def receive(self, response_type: type[ProduceResponse]) -> ProduceResponse:
        if self.is_closed:
            raise OSError("Bad file descriptor")
        return self._responses.popleft()


class ModelCluster:
    def __init__(self) -> None:
        self.nodes = {A: Node(), B: Node()}
        self.leaders = {P0: A, P1: A}
        self.without_leader: set[TopicPartition] = set()
        """Partitions that have no leader before the next `close`, which discards the metadata."""
        self.channels: dict[int, ModelChannel] = {}

    def leader(self, partition: TopicPartition) -> int:
        if partition in self.without_leader:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return self.leaders[partition]

    def topic(self, name: str) -> Topic:
        return Topic(name, TOPIC_ID, {partition.partition: node for partition, node in self.leaders.items()})

    def channel(self, node_id: int) -> ModelChannel:
        return self.channels.setdefault(node_id, ModelChannel(self.nodes[node_id]))

    def drop(self, node_id: int) -> None:
        self.channels.pop(node_id).is_closed = True

    def close(self) -> None:
        for node_id in list(self.channels):
            self.drop(node_id)
        self.without_leader.clear()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ModelCluster:
    monkeypatch.setattr(sending, "BACKOFF_SECONDS_FIRST", 0.0)
    return ModelCluster()


def options(**given: str) -> WriteOptions:
    return write_options({"kafka.bootstrap.servers": "localhost:1", "topic": "t"} | given)


def sending_to(cluster: ModelCluster, **given: str) -> Sending:
    model: Any = cluster
    return Sending(model, options(**given))


def batch(partition: TopicPartition, number: int) -> RecordBatch:
    return RecordBatch(partition, bytearray(f"{partition} {number}".encode()))


def send(producer: Sending, partition: TopicPartition, *numbers: int) -> None:
    for number in numbers:
        producer.send([batch(partition, number)])


def written(partition: TopicPartition, *numbers: int) -> list[bytes]:
    return [bytes(batch(partition, number).data) for number in numbers]


def test_batches_in_flight_on_a_closed_connection_are_resent_before_newer_ones(cluster: ModelCluster) -> None:
    """A retry of the cluster, for the metadata of another topic, closes all its connections."""
    producer = sending_to(cluster)
    cluster.channel(A).is_lossy = True
    send(producer, P0, 1, 2)
    cluster.close()
    send(producer, P0, 3)
    producer.flush()
    assert cluster.nodes[A].written == written(P0, 1, 2, 3)


def test_flush_resends_batches_in_flight_on_a_closed_connection(cluster: ModelCluster) -> None:
    producer = sending_to(cluster)
    cluster.channel(A).is_lossy = True
    send(producer, P0, 1, 2)
    cluster.close()
    producer.flush()
    assert cluster.nodes[A].written == written(P0, 1, 2)


def test_a_new_leader_gets_a_batch_after_the_responses_of_the_old_one(cluster: ModelCluster) -> None:
    producer = sending_to(cluster)
    send(producer, P0, 1)
    cluster.leaders[P0] = B
    send(producer, P0, *range(2, 2 + 2 * IN_FLIGHT_MAX))
    producer.flush()
    assert cluster.nodes[A].written == written(P0, 1)
    assert cluster.nodes[B].written == written(P0, *range(2, 2 + 2 * IN_FLIGHT_MAX))


def test_batches_rejected_by_the_old_leader_are_sent_first_to_the_new_one(cluster: ModelCluster) -> None:
    producer = sending_to(cluster)
    cluster.nodes[A].rejects_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    send(producer, P0, 1, 2)
    cluster.leaders[P0] = B
    send(producer, P0, 3)
    producer.flush()
    assert cluster.nodes[B].written == written(P0, 1, 2, 3)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_partition_without_a_leader_loses_no_batch(cluster: ModelCluster, acks: str) -> None:
    producer = sending_to(cluster, **{"kafka.acks": acks})
    cluster.leaders[P1] = B
    cluster.without_leader.add(P0)
    producer.send([batch(P0, 1), batch(P1, 1), batch(P0, 2)])
    producer.flush()
    assert cluster.nodes[A].written == written(P0, 1, 2)
    assert cluster.nodes[B].written == written(P1, 1)


def test_with_acks_0_a_batch_is_sent_again_only_if_its_connection_was_lost(cluster: ModelCluster) -> None:
    producer = sending_to(cluster, **{"kafka.acks": "0"})
    cluster.leaders[P1] = B
    cluster.channel(B).is_closed = True
    producer.send([batch(P0, 1), batch(P1, 1)])
    assert cluster.nodes[A].written == written(P0, 1)
    assert cluster.nodes[B].written == written(P1, 1)


def test_an_unknown_error_code_is_shown_by_its_number(cluster: ModelCluster) -> None:
    producer = sending_to(cluster)
    cluster.nodes[A].rejects_with = 9999
    send(producer, P0, 1)
    with pytest.raises(KafkaError, match="t-0: UNKNOWN_ERROR_CODE_9999"):
        producer.flush()
