"""The stand-in's consumer reads all available partitions, whatever is wrong with the others."""

from __future__ import annotations

from typing import Any

import pytest
from stand_in_brokers import BOOTSTRAP, FakeBrokers, batch_with_one_record, fetch_response

from moldau.base.errors import ErrorCode
from moldau.client.stand_in.consumer import Consumer
from moldau.client.stand_in.values import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from moldau.wire.apis import ApiKey
from moldau.wire.records import Record, build_batch

pytestmark = pytest.mark.usefixtures("no_waiting")


def consumer(partitions: int = 2, offset: int = -2) -> Consumer:
    made = Consumer({"bootstrap.servers": BOOTSTRAP})
    made.assign([TopicPartition("t", index, offset) for index in range(partitions)])
    return made


def values(reader: Consumer, polls: int = 4) -> list[bytes | None]:
    read = [reader.poll(1) for _ in range(polls)]
    return [each.value() for each in read if each is not None]


@pytest.mark.parametrize("offset", [-2, 0])
def test_a_partition_without_a_leader_does_not_block_others(brokers: FakeBrokers, offset: int) -> None:
    brokers.topics["t"] = {0: -1, 1: 1}
    reader = consumer(offset=offset)
    assert values(reader) == [b"1"]
    brokers.topics["t"] = {0: 2, 1: 1}
    assert values(reader) == [b"0"]


def test_a_message_has_the_leader_epoch_of_its_batch(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1}
    batches = {
        0: build_batch([Record(0, 0, None, b"")], base_offset=0),
        1: build_batch([Record(1, 0, None, b"")], base_offset=1, leader_epoch=5),
    }
    brokers.handlers[ApiKey.FETCH] = lambda _, request: fetch_response(
        request, lambda each: memoryview(bytes(batches[each.fetch_offset]))
    )
    reader = consumer(1, offset=0)
    read = [message for message in (reader.poll(1), reader.poll(1)) if message is not None]
    assert [each.leader_epoch() for each in read] == [None, 5]


def test_a_deleted_topic_does_not_block_others(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1}
    reader = consumer(1)
    reader.incremental_assign([TopicPartition("gone", index, 0) for index in range(50)])
    assert values(reader, 2) == [b"0"]


def test_a_deleted_topic_is_looked_up_less_and_less_often(brokers: FakeBrokers) -> None:
    reader = consumer(1)
    assert values(reader, polls=20) == []
    assert 20 <= len(brokers.requests(ApiKey.METADATA)) <= 25
    brokers.topics["t"] = {0: 1}
    assert values(reader, polls=2) == [b"0"]


def test_a_dead_leader_does_not_block_others(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 2, 1: 3}
    brokers.dead = {2}
    reader = consumer()
    assert values(reader) == [b"1"]
    brokers.topics["t"] = {0: 1, 1: 3}
    assert values(reader) == [b"0"]


def test_a_leader_that_moved_is_found_while_another_partition_is_busy(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1, 1: 2}

    def answer(node: int, request: Any) -> Any:
        """Return another record each time; partition 0 is led by node 3 only."""
        response = fetch_response(request, lambda each: batch_with_one_record(each.partition, each.fetch_offset))
        for data in (each for topic in response.responses for each in topic.partitions):
            if data.partition_index == 0 and node != 3:
                data.error_code, data.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        return response

    brokers.handlers[ApiKey.FETCH] = answer
    reader = consumer(offset=0)
    assert values(reader, 1) == [b"1"]
    brokers.topics["t"] = {0: 3, 1: 2}
    assert b"0" in values(reader, 6)


def test_a_fatal_error_is_raised_even_while_another_partition_has_records(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1, 1: 2}
    listed = brokers.handlers[ApiKey.LIST_OFFSETS]

    def answer(node: int, request: Any) -> Any:
        response = listed(node, request)
        if node == 1:
            response.topics[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return response

    brokers.handlers[ApiKey.LIST_OFFSETS] = answer
    reader = consumer()
    with pytest.raises(KafkaException):
        reader.poll(1)
    assert values(reader, 1) == [b"1"]


@pytest.mark.parametrize("offset", [OFFSET_INVALID, 7])
def test_a_partition_without_a_valid_offset_is_an_error_if_offsets_are_not_reset(
    brokers: FakeBrokers, offset: int
) -> None:
    def out_of_range(_: int, request: Any) -> Any:
        response = fetch_response(request, lambda each: None)
        response.responses[0].partitions[0].error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return response

    brokers.topics["t"] = {0: 1}
    brokers.handlers[ApiKey.FETCH] = out_of_range
    reader = Consumer({"bootstrap.servers": BOOTSTRAP, "auto.offset.reset": "error"})
    reader.assign([TopicPartition("t", 0, offset)])
    (message,) = [each for each in (reader.poll(1), reader.poll(1)) if each is not None]
    error = message.error()
    assert error is not None
    assert (error.code(), error.name()) == (KafkaError._AUTO_OFFSET_RESET, "_AUTO_OFFSET_RESET")
