"""Batches and records against two independent implementations, and against malformed bytes."""

from __future__ import annotations

import random
import warnings

import aiokafka.record.default_records as aiokafka_records
import hypothesis.strategies as st
import pytest
from harness.depth import deep
from hypothesis import given, settings

from moldau.base.errors import MalformedData
from moldau.wire.batch import has_valid_crc, read_header
from moldau.wire.compression import Compression
from moldau.wire.records import (
    NEXT_OFFSET,
    ControlType,
    EndTxnMarker,
    Record,
    append_varint,
    build_batch,
    build_value_batch,
    control_record,
    control_type,
    decode_records,
    end_txn_marker,
    iterate_records,
    read_end_txn_marker,
    read_varint,
)

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records as kafka_python_records

ORACLES = pytest.mark.parametrize("oracle", [kafka_python_records, aiokafka_records], ids=["kafka-python", "aiokafka"])

optional_bytes = st.none() | st.binary(max_size=60)
# The oracles, like us, refuse null header keys and text that UTF-8 cannot encode.
headers = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), optional_bytes), max_size=3)
records_strategy = st.lists(
    st.builds(
        Record,
        offset=st.just(NEXT_OFFSET),
        timestamp=st.integers(1_000_000_000_000, 2_000_000_000_000),
        key=optional_bytes,
        value=optional_bytes,
        headers=headers.map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def as_tuples(records: list[Record]) -> list[tuple[object, ...]]:
    return [
        (offset, r.timestamp, r.key, r.value, [(key, value) for key, value in r.headers])
        for offset, r in enumerate(records)
    ]


@ORACLES
@settings(max_examples=deep(14, quick=6), deadline=None)
@given(records=records_strategy, codec=st.sampled_from(Compression), transactional=st.booleans())
def test_others_read_our_batches(oracle, records, codec, transactional) -> None:  # type: ignore[no-untyped-def]
    batch = build_batch(
        records,
        compression=codec,
        producer_id=1234,
        producer_epoch=5,
        base_sequence=77,
        is_transactional=transactional,
    )
    theirs = oracle.DefaultRecordBatch(bytearray(batch))
    assert theirs.validate_crc()
    assert theirs.is_transactional is transactional
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (1234, 5, 77)
    read = [(r.offset, r.timestamp, r.key, r.value, [(k, v) for k, v in r.headers]) for r in theirs]
    assert read == as_tuples(records)


@ORACLES
@settings(max_examples=deep(14, quick=6), deadline=None)
@given(records=records_strategy, codec=st.sampled_from(Compression))
def test_batches_of_other_implementations_are_read(oracle, records, codec) -> None:  # type: ignore[no-untyped-def]
    builder = oracle.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=9,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 20,
    )
    for offset, r in enumerate(records):
        builder.append(offset, timestamp=r.timestamp, key=r.key, value=r.value, headers=list(r.headers))
    batch = bytes(builder.build())
    header = read_header(batch)
    assert has_valid_crc(memoryview(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 3)
    ours = decode_records(batch)
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in ours] == as_tuples(records)


def test_a_batch_of_values_is_the_same_as_one_of_records() -> None:
    values = [bytes(number % 300) for number in range(1_500)] + [bytes(100_000)]
    records = [Record(offset, 1_700_000_000_000, None, value) for offset, value in enumerate(values)]
    batch = build_value_batch(values, 1_700_000_000_000, 7)
    assert batch == build_batch(records, leader_epoch=7)
    assert list(iterate_records(batch, read_header(batch))) == decode_records(batch)


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    target = bytearray(b"x")
    append_varint(target, value)
    assert read_varint(bytes(target), 1, bits=64) == (value, len(target))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80" * 5 + b"\x01", b"\xff\xff\xff\xff\x1f"])
def test_varints_without_an_end_or_too_long_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedData):
        read_varint(data, 0)


def test_offsets_may_have_gaps_as_compaction_leaves_them() -> None:
    records = [Record(100, 5, b"a", b"1"), Record(103, 6, b"b", None), Record(NEXT_OFFSET, 7, None, b"")]
    batch = build_batch(records, base_offset=100)
    assert [r.offset for r in decode_records(batch)] == [100, 103, 104]
    assert read_header(batch).last_offset_delta == 4


def test_log_append_time_is_every_records_timestamp() -> None:
    batch = build_batch(
        [Record(NEXT_OFFSET, 5, None, b"a"), Record(NEXT_OFFSET, 9, None, b"b")], is_log_append_time=True
    )
    assert [r.timestamp for r in decode_records(batch)] == [9, 9]


def test_a_batch_with_any_bit_flipped_is_decoded_or_refused() -> None:
    """For any bytes, decoding returns records or raises MalformedData, never another error, and uses little memory."""
    records = [Record(NEXT_OFFSET, 1000 + i, b"k%d" % i, b"v" * i, (("h", b"x"), ("n", None))) for i in range(4)]
    rng = random.Random(7)
    for codec in Compression:
        batch = build_batch(records, compression=codec)
        refused = 0
        for position in range(8, len(batch)):
            broken = bytearray(batch)
            broken[position] ^= 1 << rng.randrange(8)
            try:
                decode_records(broken)
            except MalformedData:
                refused += 1
        assert refused > 10


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_truncated_body_is_refused(cut: int) -> None:
    batch = build_batch([Record(NEXT_OFFSET, 1, b"key", b"value", (("h", b"x"),))])
    short = bytearray(batch[:-cut])
    short[8:12] = (len(short) - 12).to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedData):
        decode_records(short)


def test_trailing_bytes_are_refused() -> None:
    batch = build_batch([Record(NEXT_OFFSET, 1, b"key", b"value")]) + b"\0"
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(MalformedData, match="left after"):
        decode_records(batch)


@pytest.mark.parametrize("count", [-1, 2, 1000, 2**31 - 1])
def test_a_wrong_count_is_refused(count: int) -> None:
    batch = build_batch([Record(NEXT_OFFSET, 1, b"key", b"value")])
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedData):
        decode_records(batch)


def test_negative_lengths_other_than_null_are_refused() -> None:
    # length 7 | attributes | timestamp delta | offset delta | key length -2 | ...
    body = bytes([14, 0, 0, 0, 3, 1, 0, 0])
    batch = build_batch([Record(NEXT_OFFSET, 1, None, b"")])[:61] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(MalformedData):
        decode_records(batch)


@pytest.mark.parametrize(("claimed", "bytes_more"), [(5, 0), (7, 1)])
def test_the_error_for_a_wrong_record_length_has_both_lengths(claimed: int, bytes_more: int) -> None:
    # length | attributes | timestamp delta | offset delta | no key | no value | no headers
    body = bytes([claimed << 1, 0, 0, 0, 1, 1, 0]) + bytes(bytes_more)
    batch = build_batch([Record(NEXT_OFFSET, 1, None, b"")])[:61] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(MalformedData, match=f"a record claims {claimed} bytes, its fields have 6"):
        decode_records(batch)


@ORACLES
def test_other_implementations_recognise_our_markers(oracle) -> None:  # type: ignore[no-untyped-def]
    for committed in (True, False):
        marker = EndTxnMarker(committed, coordinator_epoch=7)
        batch = build_batch([end_txn_marker(marker, 1000)], is_control=True, is_transactional=True, producer_id=4)
        assert oracle.DefaultRecordBatch(bytearray(batch)).is_control_batch
        (record,) = decode_records(batch)
        assert record.key == bytes([0, 0, 0, int(committed)])
        assert read_end_txn_marker(record) == marker


def test_control_records_of_other_kinds() -> None:
    leader_change = control_record(ControlType.LEADER_CHANGE, b"...", 1000)
    assert control_type(leader_change) is ControlType.LEADER_CHANGE
    assert read_end_txn_marker(leader_change) is None
    assert control_type(Record(0, 0, b"\0\0\0\x63", b"")) == 99
    with pytest.raises(MalformedData):
        control_type(Record(0, 0, None, b""))
    with pytest.raises(MalformedData):
        read_end_txn_marker(Record(0, 0, b"\0\0\0\1", b"\0"))
