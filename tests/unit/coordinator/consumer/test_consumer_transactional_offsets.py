"""Offsets that a producer commits for a member of a consumer group: who may commit, and the errors for others."""

from __future__ import annotations

import pytest
from harness.in_memory_consumer_shard import InMemoryConsumerShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.machine import Client
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

TOO_LARGE = "m" * 5_000


@pytest.fixture
def shard() -> InMemoryConsumerShard:
    """Return a shard whose member is in epoch 3; it has partitions 0 to 3 since epoch 2, partition 4 since epoch 3."""
    shard = InMemoryConsumerShard()
    shard.create_topic("a", 4)
    join = ConsumerGroupHeartbeatRequest("g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"])
    join.topic_partitions = []
    shard.heartbeat(join)
    shard.grow_topic("a", 5)
    shard.heartbeat(ConsumerGroupHeartbeatRequest("g", "m", 2))
    shard.grow_topic("a", 6)
    assert shard.group().members["m"].member_epoch == 3
    return shard


def send(
    shard: InMemoryConsumerShard,
    epoch: int,
    member_id: str = "m",
    partition: int = 0,
    version: int = 5,
    metadata: str = "",
) -> list[int]:
    places = [TxnOffsetCommitRequestPartition(partition, 1, -1, metadata), TxnOffsetCommitRequestPartition(0, 1)]
    topics = [TxnOffsetCommitRequestTopic("a", places)]
    request = TxnOffsetCommitRequest("transaction", "g", 70, 0, epoch, member_id, None, topics)
    offsets = Offsets(shard.state, lambda *_: None)
    outcome = offsets.transactional_commit(request, Client("client", "/127.0.0.1", version))
    assert isinstance(outcome.response, TxnOffsetCommitResponse)
    codes = [each.error_code for each in outcome.response.topics[0].partitions]
    assert len(outcome.records) == codes.count(ErrorCode.NONE)
    return codes


def common_error(shard: InMemoryConsumerShard, epoch: int, member_id: str = "m", partition: int = 0) -> int:
    """Return the code, the same for all: if one partition may not be committed, none is."""
    first, second = send(shard, epoch, member_id, partition)
    assert first == second
    return first


@pytest.mark.parametrize("version", [0, 5])
def test_a_producer_without_a_member_may_commit_while_there_are_members(
    shard: InMemoryConsumerShard, version: int
) -> None:
    assert send(shard, -1, "", version=version) == [ErrorCode.NONE] * 2


def test_a_member_commits_with_its_epoch_in_any_version(shard: InMemoryConsumerShard) -> None:
    assert send(shard, 3, version=3) == [ErrorCode.NONE] * 2


def test_an_unknown_member_is_refused(shard: InMemoryConsumerShard) -> None:
    assert common_error(shard, 3, "unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert common_error(shard, 3, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert common_error(shard, -1, "unknown") == ErrorCode.UNKNOWN_MEMBER_ID


def test_producers_get_illegal_generation_for_a_newer_epoch(shard: InMemoryConsumerShard) -> None:
    assert common_error(shard, 4) == ErrorCode.ILLEGAL_GENERATION


def test_an_older_epoch_commits_for_partitions_of_that_epoch(shard: InMemoryConsumerShard) -> None:
    assert send(shard, 2, partition=3) == [ErrorCode.NONE] * 2
    assert common_error(shard, 2, partition=4) == ErrorCode.ILLEGAL_GENERATION
    assert common_error(shard, 2, partition=5) == ErrorCode.ILLEGAL_GENERATION


def test_too_large_metadata_is_refused_before_the_owner_is_checked(shard: InMemoryConsumerShard) -> None:
    assert send(shard, 2, partition=5, metadata=TOO_LARGE) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert send(shard, 4, partition=5, metadata=TOO_LARGE) == [ErrorCode.ILLEGAL_GENERATION] * 2


def test_an_unknown_partition_is_reported_also_for_an_illegal_epoch(shard: InMemoryConsumerShard) -> None:
    codes = send(shard, 4, partition=6)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ILLEGAL_GENERATION]


def test_a_commit_with_only_an_instance_id_needs_a_known_member(shard: InMemoryConsumerShard) -> None:
    with pytest.raises(KafkaError) as refused:
        shard.group().check_commit("", "instance", -1, 5, in_transaction=True)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
