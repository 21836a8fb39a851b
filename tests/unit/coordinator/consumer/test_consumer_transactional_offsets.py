"""Offsets that a producer commits for a member of a consumer group: who may, and the errors if not."""

from __future__ import annotations

import pytest
from consumer_rooms import ConsumerRooms

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
def rooms() -> ConsumerRooms:
    """The member is in epoch 3; it has partitions 0 to 3 since epoch 2, partition 4 since epoch 3."""
    rooms = ConsumerRooms()
    rooms.create_topic("a", 4)
    join = ConsumerGroupHeartbeatRequest("g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"])
    join.topic_partitions = []
    rooms.beat(join)
    rooms.grow_topic("a", 5)
    rooms.beat(ConsumerGroupHeartbeatRequest("g", "m", 2))
    rooms.grow_topic("a", 6)
    assert rooms.group().members["m"].member_epoch == 3
    return rooms


def send(
    rooms: ConsumerRooms, epoch: int, member_id: str = "m", partition: int = 0, version: int = 5, metadata: str = ""
) -> list[int]:
    places = [TxnOffsetCommitRequestPartition(partition, 1, -1, metadata), TxnOffsetCommitRequestPartition(0, 1)]
    topics = [TxnOffsetCommitRequestTopic("a", places)]
    request = TxnOffsetCommitRequest("transaction", "g", 70, 0, epoch, member_id, None, topics)
    offsets = Offsets(rooms.state, lambda *_: None)
    outcome = offsets.transactional_commit(request, Client("client", "/127.0.0.1", version))
    assert isinstance(outcome.response, TxnOffsetCommitResponse)
    codes = [each.error_code for each in outcome.response.topics[0].partitions]
    assert len(outcome.records) == codes.count(ErrorCode.NONE)
    return codes


def refusal(rooms: ConsumerRooms, epoch: int, member_id: str = "m", partition: int = 0) -> int:
    """Return the code, the same for all: if one partition may not be committed, none is."""
    first, second = send(rooms, epoch, member_id, partition)
    assert first == second
    return first


@pytest.mark.parametrize("version", [0, 5])
def test_a_producer_without_a_member_may_commit_while_there_are_members(rooms: ConsumerRooms, version: int) -> None:
    assert send(rooms, -1, "", version=version) == [ErrorCode.NONE] * 2


def test_a_member_commits_with_its_epoch_in_any_version(rooms: ConsumerRooms) -> None:
    assert send(rooms, 3, version=3) == [ErrorCode.NONE] * 2


def test_an_unknown_member_is_refused(rooms: ConsumerRooms) -> None:
    assert refusal(rooms, 3, "who") == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(rooms, 3, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(rooms, -1, "who") == ErrorCode.UNKNOWN_MEMBER_ID


def test_producers_get_illegal_generation_for_a_newer_epoch(rooms: ConsumerRooms) -> None:
    assert refusal(rooms, 4) == ErrorCode.ILLEGAL_GENERATION


def test_an_older_epoch_commits_for_partitions_of_that_epoch(rooms: ConsumerRooms) -> None:
    assert send(rooms, 2, partition=3) == [ErrorCode.NONE] * 2
    assert refusal(rooms, 2, partition=4) == ErrorCode.ILLEGAL_GENERATION
    assert refusal(rooms, 2, partition=5) == ErrorCode.ILLEGAL_GENERATION


def test_too_large_metadata_is_refused_before_the_owner_is_checked(rooms: ConsumerRooms) -> None:
    assert send(rooms, 2, partition=5, metadata=TOO_LARGE) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert send(rooms, 4, partition=5, metadata=TOO_LARGE) == [ErrorCode.ILLEGAL_GENERATION] * 2


def test_any_client_gets_an_error_for_an_unknown_partition(rooms: ConsumerRooms) -> None:
    codes = send(rooms, 4, partition=6)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ILLEGAL_GENERATION]


def test_an_instance_id_alone_identifies_a_member(rooms: ConsumerRooms) -> None:
    with pytest.raises(KafkaError) as refused:
        rooms.group().check_commit("", "instance", -1, 5, in_transaction=True)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
