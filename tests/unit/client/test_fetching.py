"""A client's fetch without I/O: the request, its response by partition, whole batches, aborted transactions."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Topic
from moldau.client.fetching.batches import batch_positions, whole_batches
from moldau.client.fetching.requests import Fetch, FetchedPartition, FetchLimits
from moldau.wire.batch import BATCH_HEADER_BYTES, MAGIC_POSITION
from moldau.wire.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from moldau.wire.records import EndTxnMarker, Record, build_batch, end_txn_marker

LIMITS = FetchLimits(wait_ms=500, bytes_max=1000, partition_bytes_max=100)
IDS = {"orders": bytes(range(16)), "payments": bytes(range(16, 32))}
POSITIONS = {TopicPartition("orders", 1): 7, TopicPartition("payments", 0): 3, TopicPartition("orders", 0): 5}


def topic(name: str) -> Topic:
    """The payments are read from a view, which has a name of its own."""
    return Topic("view" if name == "payments" else name, IDS[name], {0: 1, 1: 1})


def fetch(read_committed: bool = False) -> Fetch:
    return Fetch(topic, POSITIONS, LIMITS, read_committed)


def batch(offset: int, *values: bytes, producer: int = -1) -> bytes:
    records = [Record(-1, 0, None, value) for value in values]
    is_transactional = producer >= 0
    return bytes(build_batch(records, base_offset=offset, producer_id=producer, is_transactional=is_transactional))


def marker(offset: int, producer: int, committed: bool) -> bytes:
    record = end_txn_marker(EndTxnMarker(committed, 0), 0)
    return bytes(
        build_batch([record], base_offset=offset, producer_id=producer, is_transactional=True, is_control=True)
    )


def fetched(data: bytes, *aborted: tuple[int, int], read_committed: bool = True) -> FetchedPartition:
    transactions = [AbortedTransaction(producer, first) for producer, first in aborted]
    part = PartitionData(0, 0, 90, 80, records=memoryview(data), aborted_transactions=transactions)
    response = FetchResponse(responses=[FetchableTopicResponse(IDS["orders"], partitions=[part])])
    (only,) = fetch(read_committed).partitions(response)
    return only


def shown(data: bytes, *aborted: tuple[int, int], read_committed: bool = True) -> list[int]:
    part = fetched(data, *aborted, read_committed=read_committed)
    return [each.header.base_offset for each in part.batches() if each.holds_records]


def test_a_request_has_the_positions_in_order_by_topic() -> None:
    request = fetch(read_committed=True).request
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (500, 1, 1000, 1)
    assert [
        (each.topic, each.topic_id, [(at.partition, at.fetch_offset, at.partition_max_bytes) for at in each.partitions])
        for each in request.topics
    ] == [("orders", IDS["orders"], [(1, 7, 100), (0, 5, 100)]), ("view", IDS["payments"], [(0, 3, 100)])]


@pytest.mark.parametrize("by_id", [True, False])
def test_a_response_is_taken_apart_by_id_or_by_name(by_id: bool) -> None:
    answered = [
        FetchableTopicResponse(
            topic="" if by_id else name,
            topic_id=topic_id if by_id else bytes(16),
            partitions=[PartitionData(0, code, 90, 80)],
        )
        for name, topic_id, code in (("orders", IDS["orders"], 0), ("view", IDS["payments"], 1))
    ]
    orders, payments = fetch().partitions(FetchResponse(responses=answered))
    assert (orders.partition, orders.position, orders.error, orders.end) == (("orders", 0), 5, ErrorCode.NONE, 90)
    assert list(orders.batches()) == []
    assert (payments.partition, payments.error) == (("payments", 0), ErrorCode.OFFSET_OUT_OF_RANGE)
    (orders, _) = fetch(read_committed=True).partitions(FetchResponse(responses=answered))
    assert orders.end == 80


def test_an_error_of_the_whole_response_is_raised() -> None:
    with pytest.raises(KafkaError) as raised:
        list(fetch().partitions(FetchResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("name", "index"), [("orders", 2), ("others", 0)])
def test_a_partition_that_was_not_requested_is_refused(name: str, index: int) -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(topic=name, partitions=[PartitionData(index)])])
    with pytest.raises(MalformedData, match="was not requested"):
        list(fetch().partitions(response))


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    two = batch(0, b"a") + batch(1, b"b")
    whole = [(len(two), 2), (len(two) - 1, 1), (70, 1), (BATCH_HEADER_BYTES, 0), (3, 0), (0, 0)]
    for cut, count in whole:
        part = memoryview(two[:cut])
        assert [header.base_offset for header, _ in whole_batches(part)] == [*range(count)]
        positions, end = batch_positions(part)
        assert (len(positions), end) == (count, count * len(two) // 2)


@pytest.mark.parametrize("size", [20, 200])
def test_messages_of_an_older_format_are_refused_instead_of_waited_for(size: int) -> None:
    """They are shorter than the header of a batch: whoever only looks for whole batches never gets ahead."""
    old = bytearray(12 + size)
    old[8:12] = size.to_bytes(4, "big")
    old[MAGIC_POSITION] = 1
    batches = whole_batches(memoryview(batch(0, b"a") + old))
    assert next(batches)[0].base_offset == 0
    with pytest.raises(MalformedData, match="message format 1"):
        next(batches)


def test_batches_of_aborted_transactions_hold_no_records() -> None:
    data = (
        batch(0, b"a", producer=1) + batch(1, b"b", producer=2) + batch(2, b"c") + marker(3, 1, False)
        + batch(4, b"d", producer=1) + marker(5, 2, True) + marker(6, 1, True)
    )  # fmt: skip
    assert shown(data) == [0, 1, 2, 4]
    assert shown(data, (1, 0)) == [1, 2, 4]
    assert shown(data, (1, 0), (2, 1)) == [2, 4]
    assert shown(data, (1, 4)) == [0, 1, 2]
    assert shown(data, (1, 0), read_committed=False) == [0, 1, 2, 4]


def test_a_transaction_may_begin_within_a_batch_or_before_the_fetch() -> None:
    data = batch(5, b"a", b"b", producer=1) + marker(7, 1, False) + batch(8, b"c", producer=1)
    assert shown(data, (1, 6)) == [8]
    assert shown(data, (1, 2)) == [8]


def test_a_marker_that_cannot_be_read_is_malformed() -> None:
    control = build_batch(
        [Record(-1, 0, b"", None)], base_offset=1, producer_id=1, is_transactional=True, is_control=True
    )
    with pytest.raises(MalformedData, match="batch at offset 1: a control record without its key"):
        shown(batch(0, b"a", producer=1) + bytes(control), (1, 0))
    assert shown(batch(0, b"a", producer=1) + bytes(control), (2, 0)) == [0], "nobody needs to read it"
