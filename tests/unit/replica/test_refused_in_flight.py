"""Produce requests in flight: one is refused for lack of space, of in-sync replicas or of leadership, and the reason is
gone when the next one arrives. It must get the same error: a client takes any other for a gap or for a success."""

from __future__ import annotations

import pytest
from harness.in_memory_node import batch
from harness.replica_world import LISTENER, TOPIC, ReplicaWorld

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.server.handler import Caller
from moldau.server.handlers.early_batches import EARLY_MAX, EarlyBatches
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

LEADER = 1
SLOW_RECORDS = 2_000
"""So many that a batch which has to be compressed is opened in a thread."""


@pytest.fixture
def world() -> ReplicaWorld:
    world = ReplicaWorld(3, min_insync_replicas="2")
    world.run(100)
    return world


def produce(world: ReplicaWorld, sequence: int, count: int = 1, node_id: int = LEADER) -> ErrorCode:
    """Send a batch of an idempotent producer, and return the error of the answer."""
    data = batch(count, producer_id=7, producer_epoch=0, base_sequence=sequence)
    topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(0, data)])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    answer = world.nodes[node_id].produce.answer(request, Caller(LISTENER, "test:1", "test", 9))
    world.run(100)
    response = answer.value() if isinstance(answer, Promise) else answer
    assert response is not None
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("known", [True, False])
def test_space_is_back_when_the_next_batch_arrives(world: ReplicaWorld, known: bool) -> None:
    first = int(known and produce(world, 0) is ErrorCode.NONE)
    world.nodes[LEADER].files.bytes_left = 0
    assert produce(world, first) is ErrorCode.KAFKA_STORAGE_ERROR
    world.nodes[LEADER].files.bytes_left = None
    assert produce(world, first + 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(world, first) is ErrorCode.NONE
    assert produce(world, first + 1) is ErrorCode.NONE
    assert world.nodes[2].partition().log.end_offset == first + 2


@pytest.mark.parametrize("count", [1, SLOW_RECORDS])
@pytest.mark.parametrize("known", [True, False])
def test_a_replica_has_joined_when_the_next_batch_arrives(world: ReplicaWorld, known: bool, count: int) -> None:
    world.controller.configs["compression.type"] = "gzip"
    first = int(known and produce(world, 0) is ErrorCode.NONE)
    for node_id in (2, 3):
        world.controller.fence(node_id)
    world.run(100)
    assert world.controller.partitions[0].isr == (LEADER,)
    assert produce(world, first, count) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.controller.register(2)
    world.nodes[2].epoch = world.controller.brokers[2].epoch
    world.controller.publish(2)
    world.run(1_000)
    assert set(world.controller.partitions[0].isr) == {LEADER, 2}
    assert produce(world, first + count, count) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(world, first, count) is ErrorCode.NONE
    assert produce(world, first + count, count) is ErrorCode.NONE


@pytest.mark.parametrize("known", [True, False])
def test_a_broker_has_learnt_that_it_leads_when_the_next_batch_arrives(world: ReplicaWorld, known: bool) -> None:
    first = int(known and produce(world, 0) is ErrorCode.NONE)
    world.run(600)
    assert produce(world, first, node_id=2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.controller.change(0, leader=2)
    world.controller.publish()
    world.run(100)
    assert produce(world, first + 1, node_id=2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(world, first, node_id=2) is ErrorCode.NONE
    assert produce(world, first + 1, node_id=2) is ErrorCode.NONE


def test_the_partition_is_there_when_the_next_batch_arrives() -> None:
    """The client knew the new topic sooner than this broker."""
    world = ReplicaWorld(3, min_insync_replicas="2")
    assert produce(world, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.run(1_000)
    assert produce(world, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(world, 0) is ErrorCode.NONE
    assert produce(world, 1) is ErrorCode.NONE


def test_there_is_room_for_the_log_of_a_new_partition_when_the_next_batch_arrives() -> None:
    world = ReplicaWorld(3, min_insync_replicas="2")
    world.nodes[LEADER].files.bytes_left = 0
    world.run(100)
    assert produce(world, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    world.nodes[LEADER].files.bytes_left = None
    world.controller.publish()
    world.run(1_000)
    assert produce(world, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(world, 0) is ErrorCode.NONE
    assert produce(world, 1) is ErrorCode.NONE


def test_only_so_many_early_batches_are_remembered(world: ReplicaWorld) -> None:
    early = EarlyBatches()
    for index in range(EARLY_MAX + 10):
        data = batch(1, producer_id=index, producer_epoch=0, base_sequence=0)
        early.add(TOPIC, index, data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert len(early.batches) == EARLY_MAX
    for index in range(EARLY_MAX + 10):
        early.pass_on(TOPIC, world.nodes[LEADER].partition(), index, 0)
    assert not early.batches


def test_a_refused_batch_that_another_leader_has_written_holds_nothing_up(world: ReplicaWorld) -> None:
    world.nodes[LEADER].files.bytes_left = 0
    assert produce(world, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    world.controller.change(0, leader=2)
    world.controller.publish()
    world.run(100)
    assert produce(world, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.nodes[LEADER].files.bytes_left = None
    assert produce(world, 0, node_id=2) is ErrorCode.NONE
    assert produce(world, 1, node_id=2) is ErrorCode.NONE
    world.run(3_000)
    world.controller.change(0, leader=LEADER)
    world.controller.publish()
    world.run(100)
    assert produce(world, 2) is ErrorCode.NONE


def test_a_leader_that_is_elected_again_still_refuses(world: ReplicaWorld) -> None:
    """A completed reassignment begins a leader epoch with the same leader; clients notice nothing."""
    world.nodes[LEADER].files.bytes_left = 0
    assert produce(world, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    world.nodes[LEADER].files.bytes_left = None
    world.controller.change(0, leader=LEADER)
    world.controller.publish()
    world.run(100)
    assert produce(world, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(world, 0) is ErrorCode.NONE
