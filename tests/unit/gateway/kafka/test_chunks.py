"""How the records of one call are divided: every record once, in order, in pieces that fit into a batch."""

from __future__ import annotations

from collections.abc import Sequence

import kafka.partitioner as kafka_python
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.murmur2 import murmur2
from moldau.gateway.kafka.chunks import (
    BATCH_BYTES,
    BATCH_RECORDS,
    Call,
    Chunk,
    chunks_by_partition,
    chunks_of_values,
    partition_of,
    size_of,
    size_of_values,
)
from moldau.gateway.ports import NewRecord, Place
from moldau.wire.batch import BATCH_HEADER_BYTES
from moldau.wire.records import NEXT_OFFSET, Record, build_batch, build_value_batch

KAFKAS_OWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From UtilsTest of Apache Kafka."""

HEADERS = st.tuples(st.text(max_size=9) | st.just("\N{DROPLET}" * 50), st.none() | st.binary(max_size=9))
RECORDS = st.builds(
    NewRecord,
    value=st.none() | st.binary(max_size=300),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(HEADERS, max_size=3).map(tuple),
    timestamp_ms=st.none() | st.integers(0, 1 << 42),
    partition=st.none() | st.integers(-1, 4),
)


def call_of(count: int) -> Call:
    return Call(count, 30.0, lambda: None)


def records_of(chunks: Sequence[Chunk]) -> list[NewRecord]:
    return [record for chunk in chunks for record in chunk.records]


def test_keys_go_where_kafkas_own_clients_send_them() -> None:
    for key, signed in KAFKAS_OWN.items():
        assert murmur2(key) == signed & 0xFFFFFFFF
        assert partition_of(key, 7) == (signed & 0x7FFFFFFF) % 7


@given(st.binary(max_size=40), st.integers(1, 1_000))
def test_any_key_goes_where_kafka_python_sends_it(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == (kafka_python.murmur2(key) & 0x7FFFFFFF) % partitions


@given(st.lists(RECORDS, max_size=30), st.integers(1, 4), st.data())
def test_every_record_is_in_one_chunk_of_its_partition_in_order(
    records: list[NewRecord], partitions: int, data: st.DataObject
) -> None:
    without_key = data.draw(st.integers(0, partitions - 1))
    call = call_of(len(records))
    by_partition = chunks_by_partition(call, records, partitions, without_key)
    seen: list[int] = []
    for partition, chunks in by_partition.items():
        indexes = [index for chunk in chunks for index in chunk.indexes]
        assert indexes == sorted(indexes)
        assert records_of(chunks) == [records[index] for index in indexes]
        for record in records_of(chunks):
            by_key = without_key if record.key is None else partition_of(record.key, partitions)
            assert partition == (by_key if record.partition is None else record.partition)
        seen += indexes
    refused = [index for index, outcome in enumerate(call.outcomes) if outcome is not None]
    assert sorted(seen + refused) == list(range(len(records)))
    for index in refused:
        assert records[index].partition not in range(partitions)
        outcome = call.outcomes[index]
        assert isinstance(outcome, KafkaError)
        assert outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_error_of_a_partition_that_is_missing_says_how_many_there_are() -> None:
    call = call_of(2)
    chunks_by_partition(call, [NewRecord(b"", partition=3), NewRecord(b"")], 3, 0)
    assert str(call.outcomes[0]).endswith("there is no partition 3: the topic has 3")
    assert call.outcomes[1] is None


@pytest.mark.parametrize(
    ("count", "size", "chunks"),
    [
        (1, 0, 1),
        (BATCH_RECORDS, 1, 1),
        (BATCH_RECORDS + 1, 1, 2),
        (3 * BATCH_RECORDS, 0, 3),
        (5, BATCH_BYTES // 5 - 100, 1),
        (6, BATCH_BYTES // 5 - 100, 2),
        (3, BATCH_BYTES + 1, 3),  # each has a batch of its own, whatever the topic says to that
    ],
)
def test_chunks_fit_into_a_batch(count: int, size: int, chunks: int) -> None:
    values = [number.to_bytes(4, "big") + bytes(size) for number in range(count)]
    of_values = list(chunks_of_values(call_of(count), values))
    assert [value for chunk in of_values for value in chunk.values or ()] == values
    assert [index for chunk in of_values for index in chunk.indexes] == list(range(count))
    of_records = chunks_by_partition(call_of(count), [NewRecord(value) for value in values], 1, 0)[0]
    assert [record.value for record in records_of(of_records)] == values
    assert len(of_records) == chunks
    for chunk in (*of_values, *of_records):
        assert len(chunk.indexes) <= BATCH_RECORDS
        assert len(chunk.indexes) == 1 or chunk.size <= BATCH_BYTES


def test_one_large_value_does_not_tear_the_small_ones_apart() -> None:
    values = [b"x"] * 1_000 + [bytes(BATCH_BYTES)] + [b"x"] * 1_000
    chunks = list(chunks_of_values(call_of(len(values)), values))
    assert [value for chunk in chunks for value in chunk.values or ()] == values
    assert len(chunks) < 25


def test_no_values_are_no_chunks() -> None:
    assert list(chunks_of_values(call_of(0), [])) == []
    assert chunks_by_partition(call_of(0), [], 3, 0) == {}


@given(st.lists(RECORDS, min_size=1, max_size=30))
def test_the_size_of_records_is_what_they_take_in_a_batch_or_slightly_more(records: list[NewRecord]) -> None:
    batch = build_batch(
        [Record(NEXT_OFFSET, each.timestamp_ms or 0, each.key, each.value, each.headers) for each in records]
    )
    assert len(batch) - BATCH_HEADER_BYTES <= sum(map(size_of, records))
    values = [each.value or b"" for each in records]
    assert len(build_value_batch(values, 0, -1)) - BATCH_HEADER_BYTES <= size_of_values(values)


@given(st.lists(RECORDS, min_size=2, max_size=9), st.booleans())
def test_halves_are_the_whole(records: list[NewRecord], has_values: bool) -> None:
    call = call_of(100)
    indexes = range(50, 50 + len(records)) if has_values else list(range(0, 2 * len(records), 2))
    values = [record.value or b"" for record in records] if has_values else None
    chunk = Chunk(call, indexes, values, () if has_values else records, 0)
    first, second = chunk.halves()
    assert len(first.indexes) >= 1
    assert len(second.indexes) >= 1
    assert [*first.indexes, *second.indexes] == list(indexes)
    assert [*first.records, *second.records] == list(chunk.records)
    assert (first.values is None) == (values is None)
    assert [*(first.values or ()), *(second.values or ())] == (values or [])
    for half in (first, second):
        assert half.call is call
        whole = sum(map(size_of, half.records)) if half.values is None else size_of_values(half.values)
        assert half.size == whole


def test_a_call_ends_once_when_all_is_known() -> None:
    ends: list[int] = []
    call = Call(4, 30.0, lambda: ends.append(1))
    error = KafkaError(ErrorCode.INVALID_RECORD)
    call.settle(range(1, 3), [Place(0, 7), Place(0, 8)])
    call.fail([3], error)
    assert ends == []
    call.settle([0], [Place(1, 0)])
    assert ends == [1]
    assert call.outcomes == [Place(1, 0), Place(0, 7), Place(0, 8), error]
