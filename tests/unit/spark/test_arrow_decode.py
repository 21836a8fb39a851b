"""Record batches decoded to Arrow, compared with a slow decoder and with aiokafka."""

from __future__ import annotations

import random

import aiokafka.record.default_records as aiokafka_records
import hypothesis.strategies as st
import pyarrow as pa
import pytest
from arrow_rows import PARTITION, SCHEMA, TOPIC, Row, decoded, fetched, plain_log, rows_of, slowly_decoded
from harness.depth import deep
from hypothesis import given, settings
from record_strategies import Log, logs, record_lists

from moldau.base.errors import MalformedData
from moldau.spark.records import decode as decoder
from moldau.spark.records import joined_records
from moldau.spark.records.decode import decode, next_offset
from moldau.wire.batch import BATCH_HEADER_BYTES, stamp_crc
from moldau.wire.compression import Compression
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

CODECS = pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())


def record(value: bytes | None, key: bytes | None = None, timestamp: int = 1000, **more: object) -> Record:
    return Record(NEXT_OFFSET, timestamp, key, value, **more)  # type: ignore[arg-type]


# --- against other decoders -------------------------------------------------------------------------------------


@settings(max_examples=deep(14), deadline=None)
@given(logs())
def test_each_committed_record_is_decoded_once_and_nothing_else(log: Log) -> None:
    assert decoded(fetched(log.data, aborted=log.aborted)) == log.committed()
    assert decoded(fetched(log.data)) == log.everything


@settings(max_examples=deep(10), deadline=None)
@given(logs(), st.data())
def test_only_the_requested_offsets_are_decoded(log: Log, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, log.end + 2))
    end = data.draw(st.integers(start, log.end + 2))
    wanted = [row for row in log.committed() if start <= row.record.offset < end]
    assert decoded(fetched(log.data, start, end, log.aborted)) == wanted


@settings(max_examples=deep(10), deadline=None)
@given(logs(), st.data())
def test_a_truncated_batch_is_left_for_the_next_fetch(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log.data)))
    whole, behind = max(((size, end) for size, end in log.boundaries if size <= cut), default=(0, 3))
    assert decoded(fetched(log.data[:cut])) == slowly_decoded(log.data[:whole])
    assert next_offset(memoryview(log.data[:cut]), 3) == max(3, behind)


@settings(max_examples=deep(10), deadline=None)
@given(record_lists(), st.sampled_from([0, 1, 2, 3, 4]))
def test_batches_written_by_aiokafka_are_decoded(records: list[Record], codec: int) -> None:
    records = [one._replace(timestamp=max(0, one.timestamp)) for one in records]  # its -1 means: not yet set
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for offset, one in enumerate(records):
        assert builder.append(offset, one.timestamp, one.key, one.value, headers=list(one.headers))
    log = bytearray(builder.build())
    assert decoded(fetched(log)) == [Row(one._replace(offset=offset), 0) for offset, one in enumerate(records)]


# --- shapes -----------------------------------------------------------------------------------------------------


@CODECS
def test_many_small_batches_are_decoded_together(codec: Compression) -> None:
    chance = random.Random(4)
    batches = [
        [record(chance.randbytes(chance.randrange(150)), chance.randbytes(8)) for _ in range(30)] for _ in range(40)
    ]
    log = plain_log(batches, codec)
    arrow = list(decode(fetched(log), SCHEMA))
    assert [batch.num_rows for batch in arrow] == [1200]
    assert rows_of(arrow) == slowly_decoded(log)


@pytest.mark.parametrize("size", [0, 1, 40, 100, 1024, 20_000])
def test_records_of_equal_size_are_decoded_whatever_the_length_of_their_varints(size: int) -> None:
    """Offset deltas, and with them lengths, grow by a byte after 64 records: a run ends and another begins."""
    log = plain_log([[record(bytes([number % 251]) * size) for number in range(1000)]])
    assert decoded(fetched(log)) == slowly_decoded(log)


@pytest.mark.parametrize("odd", [0, 5, 600, 999])
def test_one_record_of_another_size_in_a_run_is_decoded(odd: int) -> None:
    log = plain_log([[record(bytes(90 if number == odd else 100)) for number in range(1000)]])
    assert decoded(fetched(log)) == slowly_decoded(log)


def test_a_record_may_be_megabytes() -> None:
    log = plain_log([[record(b"a" * 3_000_000, b"k"), record(b"b"), record(b"c" * 2_500_000)]])
    assert decoded(fetched(log)) == slowly_decoded(log)


def test_records_without_headers_have_an_empty_list_and_not_null() -> None:
    log = plain_log([[record(b"v"), record(b"w", headers=(("h", None),))]])
    (batch,) = decode(fetched(log), SCHEMA)
    assert batch["headers"].null_count == 0
    assert batch["headers"].to_pylist() == [[], [{"key": "h", "value": None}]]


@pytest.mark.parametrize("rows", [1, 31, 32, 100])
def test_one_record_with_many_headers_among_others(rows: int) -> None:
    """Records with more headers than the others are decoded by another code path."""
    many = tuple((f"key {number}", None if number % 7 == 0 else bytes(number % 90)) for number in range(500))
    records = [record(b"v", headers=many if number == rows // 2 else many[: number % 4]) for number in range(rows)]
    log = plain_log([records])
    assert decoded(fetched(log)) == slowly_decoded(log)


def test_a_batch_that_compaction_left_empty_has_no_rows() -> None:
    empty = bytearray(build_batch([record(b"v")], base_offset=0)[:BATCH_HEADER_BYTES])
    empty[8:12] = (BATCH_HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    stamp_crc(memoryview(empty))
    log = bytes(empty + build_batch([record(b"w")], base_offset=1) + empty[:3])
    assert [row.record.value for row in decoded(fetched(log))] == [b"w"]
    assert decoded(fetched(bytes(empty))) == []
    assert next_offset(memoryview(empty), 0) == 1


def test_an_empty_fetch_has_no_rows() -> None:
    assert decoded(fetched(b"")) == []
    assert next_offset(memoryview(b""), 17) == 17


# --- transactions -----------------------------------------------------------------------------------------------


def test_an_aborted_transaction_that_began_before_the_fetch_is_dropped() -> None:
    log = Log(100)
    log.write(7, [record(b"aborted")._replace(offset=100)], Compression.NONE, False)
    log.end_transaction(7, is_committed=False)
    log.write(7, [record(b"kept")._replace(offset=102)], Compression.NONE, False)
    log.end_transaction(7, is_committed=True)
    assert [row.record.value for row in decoded(fetched(log.data, aborted=[(7, 12)]))] == [b"kept"]


def test_only_an_abort_marker_ends_an_aborted_transaction() -> None:
    log = Log(0)
    log.write(7, [record(b"aborted")._replace(offset=0)], Compression.NONE, False)
    log.end_transaction(7, is_committed=True)
    log.write(7, [record(b"aborted too")._replace(offset=2)], Compression.NONE, False)
    log.end_transaction(7, is_committed=False)
    log.write(7, [record(b"kept")._replace(offset=4)], Compression.NONE, False)
    assert [row.record.value for row in decoded(fetched(log.data, aborted=[(7, 0)]))] == [b"kept"]


def test_a_batch_that_contains_the_first_aborted_offset_is_dropped() -> None:
    log = Log(0)
    log.write(7, [record(b"aborted")._replace(offset=offset) for offset in range(3)], Compression.NONE, False)
    log.end_transaction(7, is_committed=False)
    assert decoded(fetched(log.data, aborted=[(7, 2)])) == []


def test_a_batch_outside_of_the_transaction_is_not_dropped_with_it() -> None:
    log = build_batch([record(b"kept")], producer_id=7, producer_epoch=0, base_sequence=0)
    assert [row.record.value for row in decoded(fetched(log, aborted=[(7, 0)]))] == [b"kept"]


def test_records_of_other_producers_are_not_dropped() -> None:
    log = Log(0)
    log.write(7, [record(b"aborted")._replace(offset=0)], Compression.NONE, False)
    log.write(8, [record(b"kept")._replace(offset=1)], Compression.NONE, False)
    log.write(-1, [record(b"plain")._replace(offset=2)], Compression.NONE, False)
    log.end_transaction(7, is_committed=False)
    assert [row.record.value for row in decoded(fetched(log.data, aborted=log.aborted))] == [b"kept", b"plain"]


# --- bounds -----------------------------------------------------------------------------------------------------


def test_many_rows_are_split_into_several_arrow_batches() -> None:
    rows = decoder.ROWS_MAX + 10
    log = plain_log([[record(b"%d" % number) for number in range(rows)]])
    arrow = list(decode(fetched(log, 5), SCHEMA))
    assert [batch.num_rows for batch in arrow] == [decoder.ROWS_MAX - 5, 10]
    offsets = [offset for batch in arrow for offset in batch["offset"].to_pylist()]
    assert offsets == list(range(5, rows))


def test_large_records_are_split_into_several_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "BYTES_MAX", 1000)
    log = plain_log([[record(bytes(400)) for _ in range(5)], [record(bytes(3000)), record(b"")]])
    arrow = list(decode(fetched(log), SCHEMA))
    assert [batch.num_rows for batch in arrow] == [2, 2, 1, 1, 1]
    assert rows_of(arrow) == slowly_decoded(log)


@CODECS
def test_decompressed_bytes_at_one_time_are_limited(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_records, "OPENED_BYTES_MAX", 1000)
    log = plain_log([[record(bytes(400))]] * 5 + [[record(bytes(3000))], [record(b"")]], codec)
    arrow = list(decode(fetched(log), SCHEMA))
    assert [batch.num_rows for batch in arrow] == [2, 2, 1, 1, 1]
    assert rows_of(arrow) == slowly_decoded(log)


def test_batches_far_apart_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The aborted batches between them are not decoded, but are in the same buffer."""
    monkeypatch.setattr(joined_records, "OPENED_BYTES_MAX", 1000)
    log = Log(0)
    for number in range(12):
        value = record(b"kept" if number in (0, 11) else bytes(500))
        log.write(-1 if number in (0, 11) else 7, [value._replace(offset=number)], Compression.NONE, False)
    log.aborted.append((7, 1))
    arrow = list(decode(fetched(log.data, aborted=log.aborted), SCHEMA))
    assert [batch["offset"].to_pylist() for batch in arrow] == [[0, 11]]


# --- projection -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [[name] for name in SCHEMA.names] + [["offset", "value"], ["headers", "key"], SCHEMA.names[::-1]], ids=str
)
def test_a_projection_has_the_requested_columns_in_their_order(names: list[str]) -> None:
    records = [record(b"v%d" % number, None if number % 3 else b"k", headers=(("h", b"x"),)) for number in range(50)]
    log = plain_log([records, records])
    schema = pa.schema([SCHEMA.field(name) for name in names])
    (every,) = decode(fetched(log, 10, 90), SCHEMA)
    (some,) = decode(fetched(log, 10, 90), schema)
    assert some.schema == schema
    assert some == every.select(names)


def test_columns_that_are_not_requested_are_not_validated() -> None:
    name = bytearray(plain_log([[record(b"v", headers=(("name", b""),))]]))
    name[name.index(b"name")] = 0xFF
    absurd = plain_log([[record(b"v", timestamp=1 << 62)]])
    schema = pa.schema([SCHEMA.field("value")])
    for log in (name, absurd):
        (batch,) = decode(fetched(log), schema, check_crc=False)
        assert batch["value"].to_pylist() == [b"v"]
        with pytest.raises(MalformedData, match=rf"^{TOPIC}-{PARTITION}, batch at offset 0: a "):
            decoded(fetched(log), check_crc=False)


def test_decoded_rows_do_not_refer_to_the_fetched_bytes() -> None:
    log = bytearray(plain_log([[record(b"first", b"k")] * 20]))
    (batch,) = decode(fetched(log)._replace(records=memoryview(log)), SCHEMA)
    before = batch.to_pylist()
    log[:] = bytes(len(log))
    assert batch.to_pylist() == before
