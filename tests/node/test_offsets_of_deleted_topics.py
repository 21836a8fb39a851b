"""Offsets of deleted topics are removed also if something keeps the coordinator from it at first."""

from __future__ import annotations

from dataclasses import replace

from harness.coordinator_node import PUBLIC, SECRET, CoordinatorNode

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.persistent_map import PersistentMap
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.runtime.coordinators.shard import Shard
from moldau.runtime.coordinators.shards import RELOAD_DELAY_MS
from moldau.wire.apis import ApiKey
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.wire.records import EndTxnMarker


def commit(node: CoordinatorNode, offset: int) -> None:
    topic = OffsetCommitRequestTopic(name=PUBLIC, partitions=[OffsetCommitRequestPartition(0, offset)])
    node.ask_as_admin(ApiKey.OFFSET_COMMIT, OffsetCommitRequest("g", topics=[topic]), 9)


def test_an_offset_is_removed_when_the_transaction_that_kept_it_is_aborted() -> None:
    node = CoordinatorNode()
    commit(node, 5)
    state = node.groups.shards.machine_of("g").state
    producer = node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), 5)
    identity = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch)
    topic = TxnOffsetCommitRequestTopic(PUBLIC, [TxnOffsetCommitRequestPartition(0, 6)])
    node.ask_as_admin(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest("tx", "g", *identity, topics=[topic]), 5)
    state.postponed_removals["g", (PUBLIC, 0)] = state.offsets["g"][PUBLIC][0]
    node.run_until_idle()
    assert node.committed_offsets() == {PUBLIC: [5]}
    shards = node.groups.shards
    shards.end_transaction(shards.partition_of("g"), identity, EndTxnMarker(False, 0), 0)
    node.in_memory.flush()
    node.in_memory.timers.run_soon()
    node.in_memory.timers.advance(1)
    assert not state.offsets
    node.run_until_idle()
    assert node.committed_offsets() == {}


def commit_by_id(node: CoordinatorNode, topic_id: bytes, offset: int) -> None:
    topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[OffsetCommitRequestPartition(0, offset)])
    node.ask_as_admin(ApiKey.OFFSET_COMMIT, OffsetCommitRequest("g", topics=[topic]), 10)


def fail(node: CoordinatorNode) -> Shard:
    """Let the shard of group `g` fail; it is loaded again later."""
    shard = node.groups.shards._find("g").shard
    shard._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    return shard


def delete_and_fail(node: CoordinatorNode, topic: str) -> Shard:
    """Delete the topic, and let the shard fail when it is about to remove the topic's offsets."""
    shard = node.groups.shards._find("g").shard
    node.in_memory.delete_topic(topic)
    while not shard._records:
        assert node.in_memory.timers.run_one_soon()
    return fail(node)


def load(node: CoordinatorNode) -> None:
    node.in_memory.timers.advance(RELOAD_DELAY_MS)
    node.run_until_idle()


def test_offsets_are_removed_after_the_next_load_if_the_shard_fails_meanwhile() -> None:
    node = CoordinatorNode()
    commit(node, 5)
    commit_by_id(node, node.ids[SECRET], 7)
    log = delete_and_fail(node, PUBLIC).partition.log
    end_offset = log.end_offset
    load(node)
    assert log.end_offset == end_offset + 1, "one tombstone"
    node.in_memory.create_topic(PUBLIC, 2)
    assert node.committed_offsets() == {SECRET: [7]}


def test_offsets_with_the_id_of_an_earlier_topic_are_removed_after_the_next_load() -> None:
    node = CoordinatorNode()
    commit(node, 5)
    commit_by_id(node, node.ids[SECRET], 7)
    delete_and_fail(node, SECRET)
    node.in_memory.create_topic(SECRET, 2)
    load(node)
    assert node.committed_offsets() == {PUBLIC: [5]}


def test_offsets_with_the_id_of_an_earlier_topic_expire_at_once() -> None:
    node = CoordinatorNode()
    commit_by_id(node, node.ids[SECRET], 7)
    image = node.in_memory.current.image
    topics = dict(image.topics.items())
    topics[SECRET] = replace(topics[SECRET], id=b"new".ljust(16))
    node.in_memory.current.image = replace(image, topics=PersistentMap(topics))
    commit(node, 5)
    node.groups.expire_offsets()
    node.run_until_idle()
    assert node.committed_offsets() == {PUBLIC: [5]}


def test_a_new_topic_keeps_its_offsets_when_the_coordinator_loads() -> None:
    node = CoordinatorNode()
    node.in_memory.delete_topic(SECRET)
    new_id = node.in_memory.create_topic(SECRET, 2)
    node.run_until_idle()
    commit_by_id(node, new_id, 8)
    commit(node, 5)
    fail(node)
    load(node)
    assert node.committed_offsets() == {PUBLIC: [5], SECRET: [8]}


def test_an_offset_with_the_id_of_a_new_topic_stays_if_the_deletion_is_handled_after_it() -> None:
    node = CoordinatorNode()
    commit(node, 5)
    node.in_memory.delete_topic(PUBLIC)
    node.in_memory.delete_topic(SECRET)
    new_id = node.in_memory.create_topic(SECRET, 2)
    node.in_memory.create_topic(PUBLIC, 2)
    commit_by_id(node, new_id, 8)
    assert node.committed_offsets() == {SECRET: [8]}
