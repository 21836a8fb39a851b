"""Arrow to record batches: byte for byte what `wire.records` builds, and read alike by aiokafka."""

from __future__ import annotations

from collections.abc import Sequence

import aiokafka.record.default_records as aiokafka_records
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from arrow_rows import HEADERS, Row, decoded, fetched
from harness.depth import deep
from hypothesis import given, settings
from record_strategies import record_lists

from moldau.base.errors import ErrorCode, KafkaError
from moldau.spark.records.encode import EncodeColumns, ProducerStamp, batch_limits, encode, encode_batches
from moldau.wire.batch import has_valid_crc, read_header
from moldau.wire.compression import Compression
from moldau.wire.records import Record, build_batch, decode_records

BINARY_TYPES = [pa.binary(), pa.large_binary()]
STRING_TYPES = [pa.string(), pa.large_string()]
codecs = st.sampled_from(Compression)


def columns_of(records: Sequence[Record], kind: pa.DataType | None = None) -> EncodeColumns:
    kind = kind or pa.binary()
    headers = [[{"key": key, "value": value} for key, value in record.headers] for record in records]
    return EncodeColumns(
        pa.array([record.key for record in records], kind),
        pa.array([record.value for record in records], kind),
        np.array([record.timestamp for record in records], np.int64),
        pa.array(headers, HEADERS),
    )


def sliced(columns: EncodeColumns, start: int, end: int) -> EncodeColumns:
    assert not isinstance(columns.timestamps, int)
    keys, values, headers = (
        None if column is None else column.slice(start, end - start)
        for column in (columns.keys, columns.values, columns.headers)
    )
    return EncodeColumns(keys, values, columns.timestamps[start:end], headers)


# --- against other encoders and decoders ------------------------------------------------------------------------


@settings(max_examples=deep(20), deadline=None)
@given(record_lists(), codecs, st.sampled_from(BINARY_TYPES))
def test_encoded_batches_equal_those_of_the_slow_encoder(
    records: list[Record], codec: Compression, kind: pa.DataType
) -> None:
    batch = encode(columns_of(records, kind), None, codec)
    assert batch == build_batch(records, compression=codec)
    assert decoded(fetched(batch)) == [Row(one._replace(offset=at), 0) for at, one in enumerate(records)]


@settings(max_examples=deep(10), deadline=None)
@given(record_lists(), codecs)
def test_aiokafka_reads_encoded_batches(records: list[Record], codec: Compression) -> None:
    batch = aiokafka_records.DefaultRecordBatch(bytes(encode(columns_of(records), None, codec)))
    assert batch.validate_crc()
    seen = [
        Record(one.offset, one.timestamp, one.key, one.value, tuple((key, value) for key, value in one.headers))
        for one in batch
    ]
    assert seen == [one._replace(offset=at) for at, one in enumerate(records)]


@settings(max_examples=deep(10), deadline=None)
@given(record_lists(), st.data())
def test_a_slice_is_encoded_like_columns_of_its_own(records: list[Record], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(records) - 1))
    end = data.draw(st.integers(start + 1, len(records)))
    assert encode(sliced(columns_of(records), start, end)) == build_batch(records[start:end])


@settings(max_examples=deep(10), deadline=None)
@given(record_lists(), codecs, st.integers(500, 5000))
def test_batches_encoded_together_equal_those_encoded_one_by_one(
    records: list[Record], codec: Compression, size: int
) -> None:
    columns = columns_of(records)
    limits = batch_limits(columns, size)
    stamps = [ProducerStamp(9, 1, start) for start, _ in limits]
    one_by_one = [encode(sliced(columns, *limit), stamp, codec) for limit, stamp in zip(limits, stamps, strict=True)]
    assert encode_batches(columns, limits, stamps, codec) == one_by_one


# --- columns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STRING_TYPES, ids=str)
def test_strings_are_written_in_utf_8(kind: pa.DataType) -> None:
    texts = ["Vltava", None, "Moldau", "", "Elbe → Nordsee"]
    column = pa.array(["not this one", *texts], kind).slice(1)
    records = decode_records(encode(EncodeColumns(column, column, 5)))
    wanted = [None if text is None else text.encode() for text in texts]
    assert [(record.key, record.value) for record in records] == [(one, one) for one in wanted]


def test_keys_and_values_may_be_of_different_types() -> None:
    columns = EncodeColumns(pa.array(["k"], pa.large_string()), pa.array([b"v"], pa.binary()), 5)
    assert decode_records(encode(columns)) == [Record(0, 5, b"k", b"v")]


@pytest.mark.parametrize("keys", [None, pa.nulls(300), pa.nulls(300, pa.binary())], ids=["none", "null", "binary"])
def test_without_keys_every_key_is_null(keys: pa.Array | None) -> None:
    records = decode_records(encode(EncodeColumns(keys, pa.array([b"v"] * 300), 5)))
    assert [record.key for record in records] == [None] * 300


def test_one_timestamp_serves_all_rows() -> None:
    values = pa.array([b"a", b"b"])
    assert encode(EncodeColumns(None, values, 77)) == encode(EncodeColumns(None, values, np.array([77, 77])))


def test_timestamps_may_decrease() -> None:
    records = [Record(at, time, None, b"v") for at, time in enumerate([1000, 5, 2000, -1])]
    batch = encode(columns_of(records))
    assert decode_records(batch) == records
    assert (read_header(batch).base_timestamp, read_header(batch).max_timestamp) == (1000, 2000)


def test_the_producer_stamp_is_written_to_the_batch_header() -> None:
    batch = encode(EncodeColumns(None, pa.array([b"v"] * 3), 5), ProducerStamp(1 << 40, 12, 2_000_000_000, True))
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 12, 2_000_000_000)
    assert header.is_transactional
    assert header.last_offset_delta == 2
    assert has_valid_crc(memoryview(batch))


def test_the_compression_level_reaches_the_codec() -> None:
    columns = EncodeColumns(None, pa.array([b"a river, " * 50 + b"%d" % number for number in range(2000)]), 5)
    quick, small = (encode(columns, None, Compression.ZSTD, level) for level in (1, 19))
    assert len(small) < len(quick)
    assert decode_records(small) == decode_records(quick)


# --- headers ----------------------------------------------------------------------------------------------------


def headers_in(rows: list[list[tuple[str | None, bytes | None] | None] | None]) -> pa.Array:
    as_structs = [
        None if row is None else [None if pair is None else {"key": pair[0], "value": pair[1]} for pair in row]
        for row in rows
    ]
    return pa.array(as_structs, HEADERS)


def read_back(headers: pa.Array) -> list[tuple[tuple[str, bytes | None], ...]]:
    columns = EncodeColumns(None, pa.array([b"v"] * len(headers)), 5, headers)
    return [record.headers for record in decode_records(encode(columns))]


def test_missing_headers_may_be_null_or_empty_lists() -> None:
    assert read_back(headers_in([None, [], [("a", None)], None])) == [(), (), (("a", None),), ()]
    assert read_back(headers_in([None, None])) == [(), ()]
    assert read_back(headers_in([[], []])) == [(), ()]


def test_a_slice_is_encoded_with_its_own_headers() -> None:
    headers = headers_in([[("x", b"1")], None, [("y", b"2"), ("z", None)], [("w", b"")], [("u", b"9")]])
    assert read_back(headers.slice(2, 2)) == [(("y", b"2"), ("z", None)), (("w", b""),)]


def test_entries_under_a_null_list_are_not_headers() -> None:
    pairs = pa.StructArray.from_arrays([pa.array(["hidden", "seen"]), pa.array([b"1", b"2"])], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pairs, mask=pa.array([True, False]))
    assert read_back(headers) == [(), (("seen", b"2"),)]


@pytest.mark.parametrize("row", [[(None, b"v")], [("a", b""), None]], ids=["null key", "null header"])
def test_a_header_without_a_key_is_refused_with_invalid_record(
    row: list[tuple[str | None, bytes | None] | None],
) -> None:
    with pytest.raises(KafkaError, match="a header without a key") as refused:
        read_back(headers_in([[("good", b"")], row]))
    assert refused.value.code == ErrorCode.INVALID_RECORD


# --- limits -----------------------------------------------------------------------------------------------------


@settings(max_examples=deep(14), deadline=None)
@given(record_lists(), st.just(1) | st.integers(500, 20_000), st.sets(st.integers(0, 20)))
def test_batches_keep_the_size_limit_unless_they_have_one_row(records: list[Record], size: int, cuts: set[int]) -> None:
    columns = columns_of(records)
    begins = sorted(cut for cut in cuts if cut < len(records))
    limits = batch_limits(columns, size, begins)
    assert set(begins) <= {start for start, _ in limits}
    assert [row for start, end in limits for row in range(start, end)] == list(range(len(records)))
    for start, end in limits:
        assert end - start == 1 or len(encode(sliced(columns, start, end))) <= size


def test_batches_are_filled_to_80_percent() -> None:
    columns = EncodeColumns(
        pa.array([b"user-%05d" % number for number in range(50_000)]), pa.array([bytes(100)] * 50_000), 5
    )
    limits = batch_limits(columns, 1 << 20)
    sizes = [len(batch) for batch in encode_batches(columns, limits, [None] * len(limits))]
    assert min(sizes[:-1]) > 0.8 * (1 << 20)


def test_without_rows_there_are_no_batches() -> None:
    assert batch_limits(EncodeColumns(None, pa.array([], pa.binary()), 5), 1000) == []
