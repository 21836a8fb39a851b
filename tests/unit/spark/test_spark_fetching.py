"""How a fetch response advances the positions of a read: completely, or not at all."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Topic
from moldau.client.fetching.requests import Fetch, FetchLimits
from moldau.spark.fetching import _Fetching
from moldau.spark.offsets import Range
from moldau.spark.options import read_options
from moldau.spark.records.batches import FetchedRecords
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

TOPIC_ID = bytes(range(16))
OPTIONS = read_options({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}, is_stream=False)


class OneTopic:
    """The part of a cluster that reading a response needs: the topic's name and id."""

    def topic(self, name: str) -> Topic:
        return Topic(name, TOPIC_ID, {0: 1, 1: 1})


def reading() -> _Fetching:
    ranges = [Range(TopicPartition("t", index), 0, 10) for index in range(2)]
    cluster: Any = OneTopic()
    return _Fetching(cluster, ranges, pa.schema([]), OPTIONS)


def response(*partitions: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)])


def batch_of_three() -> memoryview:
    return memoryview(bytes(build_batch([Record(NEXT_OFFSET, 5, None, b"x")] * 3)))


def take(read: _Fetching, response: FetchResponse) -> tuple[list[FetchedRecords], KafkaError | None]:
    unread = read._unread_ranges
    sent = Fetch(
        OneTopic().topic, {each.partition: each.position for each in unread}, FetchLimits(0, 1, 1), read_committed=True
    )
    return read._take(sent.partitions(response), unread)


def positions(read: _Fetching) -> list[int]:
    return [rest.position for rest in read._unread_ranges]


def test_positions_advance_behind_the_fetched_records() -> None:
    read = reading()
    fetched, error = take(read, response(PartitionData(0, records=batch_of_three())))
    assert (len(fetched), error, positions(read)) == (1, None, [3, 0])


def test_an_error_of_one_partition_does_not_hold_up_another() -> None:
    read = reading()
    moved = PartitionData(1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    fetched, error = take(read, response(PartitionData(0, records=batch_of_three()), moved))
    assert (len(fetched), positions(read)) == (1, [3, 0])
    assert error is not None
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("second", "raised"),
    [(PartitionData(7), MalformedData), (PartitionData(1, records=memoryview(bytes(100))), KafkaError)],
    ids=["a partition that was not requested", "bytes that are not a batch"],
)
def test_a_response_with_a_malformed_partition_advances_no_position(
    second: PartitionData, raised: type[Exception]
) -> None:
    """Otherwise the retry would skip the records of the first partition."""
    read = reading()
    with pytest.raises(raised):
        take(read, response(PartitionData(0, records=batch_of_three()), second))
    assert positions(read) == [0, 0]
