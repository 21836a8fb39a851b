"""Offsets of deleted topics are removed also if something keeps the coordinator from it at first."""

from __future__ import annotations

from coordinator_node import PUBLIC, CoordinatorNode

from moldau.coordinator.machine import ProducerIdAndEpoch
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
