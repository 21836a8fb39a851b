"""Which batches a log accepts. The error codes and corner cases were observed with Apache Kafka 4.3."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from harness.making_logs import NOW_MS, batch_of, new_log, offset_for_time, read_records, read_values

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log import validate
from moldau.log.config import LogConfig
from moldau.log.log import Appended, Log
from moldau.log.validate import BatchExpandsTooMuch, Origin, RecordsRejected
from moldau.wire.batch import read_header, stamp, stamp_crc
from moldau.wire.compression import Compression
from moldau.wire.records import (
    NEXT_OFFSET,
    ControlType,
    EndTxnMarker,
    Record,
    _write_records,
    build_batch,
    control_record,
    end_txn_marker,
)

HOUR_MS = 3600 * 1000


def append(log: Log, batch: memoryview, origin: Origin = Origin.CLIENT, leader_epoch: int = 1) -> Appended:
    return log.append(batch, leader_epoch=leader_epoch, now_ms=NOW_MS, origin=origin)


def refused(batch: memoryview | bytes, log: Log | None = None, origin: Origin = Origin.CLIENT) -> ErrorCode:
    log = log or new_log()
    before = (log.end_offset, log.size_bytes)
    with pytest.raises(KafkaError) as caught:
        append(log, memoryview(bytearray(batch)), origin)
    assert (log.end_offset, log.size_bytes) == before, "a refused batch changed the log"
    return caught.value.code


def changed(batch: memoryview, position: int, data: bytes, *, crc: bool = True) -> memoryview:
    batch[position : position + len(data)] = data
    if crc:
        stamp_crc(batch)
    return batch


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def test_offsets_are_consecutive_and_stamped_in_the_received_bytes() -> None:
    log = new_log()
    assert append(log, batch_of([b"a", b"b"])) == (0, 1, -1, False)
    batch = batch_of([b"c"])
    assert append(log, batch, leader_epoch=7) == (2, 2, -1, False)
    assert (read_header(batch).base_offset, read_header(batch).leader_epoch) == (2, 7)
    assert read_values(log) == {0: b"a", 1: b"b", 2: b"c"}
    assert log.epochs.entries == ((1, 0), (7, 2))
    assert log.last_epoch == 7


@pytest.mark.parametrize("length", [0, 10, 16, 30, 60])
def test_too_few_bytes_for_a_batch_are_refused(length: int) -> None:
    assert refused(batch_of()[:length]) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("length", "code"),
    [
        (5000, ErrorCode.INVALID_RECORD),
        (20, ErrorCode.CORRUPT_MESSAGE),
        (0, ErrorCode.CORRUPT_MESSAGE),
        (-5, ErrorCode.CORRUPT_MESSAGE),
        (len(batch_of()) - 12 - 3, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_wrong_batch_length_is_refused(length: int, code: ErrorCode) -> None:
    assert refused(changed(batch_of(), 8, int32(length))) is code


def test_bytes_after_the_batch_are_dropped_and_a_second_batch_is_refused() -> None:
    log = new_log()
    append(log, memoryview(bytearray(bytes(batch_of([b"a"])) + b"abc")))
    assert log.size_bytes == len(batch_of([b"a"]))
    assert refused(bytes(batch_of()) + bytes(30)) is ErrorCode.CORRUPT_MESSAGE
    assert refused(bytes(batch_of()) + bytes(batch_of())) is ErrorCode.INVALID_RECORD
    assert refused(bytes(batch_of()) * 5_000) is ErrorCode.INVALID_RECORD


def test_other_magic_values_are_refused() -> None:
    assert refused(changed(batch_of(), 16, b"\x00")) is ErrorCode.INVALID_RECORD
    assert refused(changed(batch_of(), 16, b"\x01")) is ErrorCode.INVALID_RECORD
    assert refused(changed(batch_of(), 16, b"\x03")) is ErrorCode.CORRUPT_MESSAGE


def test_a_change_of_any_byte_fails_the_crc_check() -> None:
    for position in range(17, len(batch_of())):
        batch = batch_of()
        batch[position] ^= 1
        assert refused(batch) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize(("delta", "count"), [(0, 2), (0, 0), (-1, 1), (-1, 0), (1, 1), (-(2**31), -(2**31) + 1)])
def test_contradicting_record_counts_are_refused(delta: int, count: int) -> None:
    batch = changed(changed(batch_of(), 23, int32(delta)), 57, int32(count))
    assert refused(batch) is ErrorCode.INVALID_RECORD


def test_base_offset_codec_and_sequence_of_a_client_are_checked() -> None:
    moved = batch_of()
    stamp(moved, 5, -1)
    assert refused(moved) is ErrorCode.INVALID_RECORD
    assert refused(changed(batch_of(), 22, b"\x05")) is ErrorCode.INVALID_RECORD
    assert refused(batch_of(producer_id=9, producer_epoch=0, base_sequence=-1)) is ErrorCode.INVALID_RECORD


def test_batch_size_limits() -> None:
    config = LogConfig(max_message_bytes=len(batch_of()))
    append(new_log(config), batch_of())
    assert refused(batch_of([b"values"]), new_log(config)) is ErrorCode.MESSAGE_TOO_LARGE
    append(new_log(config), batch_of([b"x" * 500]), Origin.RAFT)
    assert refused(batch_of([b"x" * 500]), new_log(config), Origin.COORDINATOR) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(batch_of(), new_log(LogConfig(segment_bytes=50))) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_control_batches_of_clients_are_refused() -> None:
    marker = build_batch([end_txn_marker(EndTxnMarker(True, 0), NOW_MS)], is_control=True, producer_id=3)
    assert refused(memoryview(marker)) is ErrorCode.INVALID_RECORD
    append(new_log(), memoryview(marker), Origin.COORDINATOR)
    leader = build_batch([control_record(ControlType.LEADER_CHANGE, b"\0\0", NOW_MS)], is_control=True)
    append(new_log(), memoryview(leader), Origin.RAFT)


def test_records_with_timestamps_out_of_range_are_listed() -> None:
    records = [Record(NEXT_OFFSET, ts, None, b"v") for ts in (NOW_MS, NOW_MS + 2 * HOUR_MS, -1, NOW_MS - HOUR_MS)]
    with pytest.raises(RecordsRejected) as caught:
        append(new_log(), memoryview(build_batch(records)))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1]
    log = new_log(LogConfig(message_timestamp_before_max_ms=1000))
    with pytest.raises(RecordsRejected) as caught:
        append(log, batch_of([b"a", b"b"], timestamp=NOW_MS - 2000))
    assert [index for index, _ in caught.value.record_errors] == [0, 1]
    append(log, batch_of(timestamp=NOW_MS + HOUR_MS))
    append(new_log(), batch_of(timestamp=-1))


def test_only_the_first_of_many_rejected_records_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "RECORD_ERRORS_OF_BATCH_MAX", 3)
    keyless = build_batch([Record(NEXT_OFFSET, NOW_MS, None, b"v")] * 5)
    early = build_batch([Record(NEXT_OFFSET, NOW_MS + 2 * HOUR_MS, None, b"v")] * 5)
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}))
    stamping = LogConfig(message_timestamp_type="LogAppendTime")
    stamped = changed(batch_of([b"v"] * 5), 22, b"\x08")
    for log, batch, message in (
        (new_log(), early, "The timestamps of 5 records are not accepted."),
        (new_log(compacted), keyless, "5 records of the batch have no key."),
        (new_log(stamping), stamped, "The timestamps of 5 records are not accepted."),
    ):
        with pytest.raises(RecordsRejected, match=message) as caught:
            append(log, memoryview(batch))
        assert [index for index, _ in caught.value.record_errors] == [0, 1, 2]


def test_a_wrong_timestamp_in_the_header_is_corrected() -> None:
    log = new_log()
    append(log, changed(batch_of([b"a"]), 35, struct.pack(">q", NOW_MS + 10 * HOUR_MS)))
    append(log, changed(batch_of([b"b"]), 22, b"\x08"))
    assert [(r.timestamp, r.value) for r in read_records(log)] == [(NOW_MS, b"a"), (NOW_MS, b"b")]
    assert offset_for_time(log, None) == (NOW_MS, 0, 1)


def test_log_append_time() -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
    old = batch_of([b"a", b"b"], timestamp=5, producer_id=1, producer_epoch=0, base_sequence=0)
    again = memoryview(bytearray(old))
    assert append(log, old) == (0, 1, NOW_MS, False)
    assert [r.timestamp for r in read_records(log)] == [NOW_MS, NOW_MS]
    assert log.append(again, leader_epoch=1, now_ms=NOW_MS + 99) == (0, 1, NOW_MS, True)
    assert refused(changed(batch_of(), 22, b"\x08"), log) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamp", [5, NOW_MS + 2 * HOUR_MS])
def test_log_append_time_does_not_open_batches(monkeypatch: pytest.MonkeyPatch, timestamp: int) -> None:
    """A producer's clock does not matter: its timestamps are overwritten."""
    monkeypatch.setattr(validate, "OPENED_RECORDS_MAX", 1)
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=HOUR_MS))
    assert append(log, batch_of([b"a", b"b"], timestamp=timestamp)) == (0, 1, NOW_MS, False)
    assert [r.timestamp for r in read_records(log)] == [NOW_MS, NOW_MS]
    assert offset_for_time(log, None) == (NOW_MS, 0, 1)
    assert refused(changed(batch_of([b"a", b"b"]), 22, b"\x08"), log) is ErrorCode.INVALID_TIMESTAMP


def test_compacted_topics_need_keys() -> None:
    log = new_log(LogConfig(cleanup_policy=frozenset({"compact"})))
    records = [Record(NEXT_OFFSET, NOW_MS, key, b"v") for key in (b"k", None, b"", None)]
    with pytest.raises(RecordsRejected) as caught:
        append(log, memoryview(build_batch(records, compression=Compression.ZSTD)))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    append(log, memoryview(build_batch(records[:1])))
    assert refused(changed(batch_of(), 61, b"\x55"), log) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("target", list(Compression))
@pytest.mark.parametrize("source", list(Compression))
def test_recompression(source: Compression, target: Compression) -> None:
    name = "uncompressed" if target is Compression.NONE else target.name.lower()
    log = new_log(LogConfig(compression_type=name))
    values = [b"value %d" % i * 20 for i in range(10)]
    batch = batch_of(values, compression=source, producer_id=5, producer_epoch=1, base_sequence=3)
    assert append(log, batch) == (0, 9, -1, False)
    assert append(log, batch_of([b"next"], compression=source)).first_offset == 10
    piece = log.read(0, 1 << 20, 20)
    assert piece is not None
    header = read_header(piece.read())
    assert header.compression is target
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 3)
    assert [r.value for r in read_records(log)] == [*values, b"next"]


def test_records_that_cannot_be_recompressed_are_refused() -> None:
    """Offsets that do not go up, and a timestamp that is beyond 64 bits with its delta."""
    log = new_log(LogConfig(compression_type="gzip"))
    stamped = [Record(NEXT_OFFSET, NOW_MS, None, value) for value in (b"a", b"b")]
    repeated = memoryview(build_batch(stamped))
    second_offset_delta = len(repeated) - 5
    assert repeated[second_offset_delta] == 2, "a zigzag number"
    assert refused(changed(repeated, second_offset_delta, b"\0"), log) is ErrorCode.INVALID_RECORD
    late = memoryview(
        build_batch([Record(NEXT_OFFSET, NOW_MS, None, b"a"), Record(NEXT_OFFSET, NOW_MS + 1, None, b"b")])
    )
    assert refused(changed(late, 27, struct.pack(">qq", 2**63 - 1, NOW_MS)), log) is ErrorCode.INVALID_RECORD
    assert refused(changed(late, 27, struct.pack(">qq", 2**63 - 1, 2**63 - 1))) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(compression_type="lz4"),
        LogConfig(cleanup_policy=frozenset({"compact"})),
        LogConfig(compression_type="lz4", cleanup_policy=frozenset({"compact"})),
    ],
)
def test_record_timestamps_are_checked_where_the_broker_reads_records(config: LogConfig) -> None:
    """The header's timestamp is valid and that of a record is not: retention would keep the segment for ten years."""
    ten_years_ms = 10 * 365 * 24 * HOUR_MS
    stamped = [Record(NEXT_OFFSET, timestamp, b"k", b"v") for timestamp in (NOW_MS, NOW_MS + ten_years_ms, -1)]
    lying = changed(memoryview(build_batch(stamped)), 35, struct.pack(">q", NOW_MS))
    with pytest.raises(RecordsRejected) as caught:
        append(new_log(config), lying)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1]
    append(new_log(replace(config, message_timestamp_type="LogAppendTime")), lying)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("is_first_late", [False, True])
def test_timestamps_too_far_apart_for_a_delta_cannot_be_recompressed(timestamp_type: str, is_first_late: bool) -> None:
    """Relative to the header's base both fit in 64 bits, relative to the first record the second one does not."""
    timestamps = sorted((NOW_MS - (2**63 - 1), NOW_MS + HOUR_MS), reverse=is_first_late)
    body, _, _ = _write_records([Record(NEXT_OFFSET, each, None, b"v") for each in timestamps], 0, 0)
    batch = batch_of([b"a", b"b"], timestamp=0)
    apart = memoryview(bytearray(batch[:61]) + body)
    changed(apart, 8, int32(len(apart) - 12))
    log = new_log(LogConfig(compression_type="lz4", message_timestamp_type=timestamp_type))
    assert refused(apart, log) is ErrorCode.INVALID_RECORD


def test_recompressed_batches_must_still_fit() -> None:
    log = new_log(LogConfig(compression_type="uncompressed", max_message_bytes=1000))
    assert refused(batch_of([b"x" * 5000], compression=Compression.ZSTD), log) is ErrorCode.MESSAGE_TOO_LARGE


def test_changing_the_config_takes_effect_with_the_next_batch() -> None:
    log = new_log()
    append(log, batch_of([b"x" * 900]))
    log.update_config(LogConfig(max_message_bytes=500))
    assert refused(batch_of([b"x" * 900]), log) is ErrorCode.MESSAGE_TOO_LARGE


# --- as a follower ----------------------------------------------------------------------------------------------


def leaders_bytes(*starts: tuple[int, int]) -> bytearray:
    """Batches of two records each at (base offset, leader epoch), as a fetch from the leader brings them."""
    content = bytearray()
    for base_offset, epoch in starts:
        batch = batch_of([b"%d" % base_offset, b"%d" % (base_offset + 1)])
        stamp(batch, base_offset, epoch)
        content += batch
    return content


def test_a_follower_keeps_offsets_and_epochs_and_drops_a_partial_batch() -> None:
    log = new_log()
    content = leaders_bytes((0, 1), (2, 1), (10, 4))
    whole = len(content)
    appended = append(log, memoryview(content + leaders_bytes((12, 4))[:-5]), Origin.REPLICATION)
    assert (appended.first_offset, appended.last_offset) == (0, 11)
    assert log.size_bytes == whole
    assert sorted(read_values(log)) == [0, 1, 2, 3, 10, 11]
    assert log.epochs.entries == ((1, 0), (4, 10))
    piece = log.read(5, 1 << 20, 12)
    assert piece is not None
    assert read_header(piece.read()).base_offset == 10, "an offset in a gap gives the next batch"


def test_a_follower_refuses_corrupt_and_overlapping_batches() -> None:
    broken = leaders_bytes((0, 1))
    broken[70] ^= 1
    assert refused(broken, origin=Origin.REPLICATION) is ErrorCode.CORRUPT_MESSAGE
    log = new_log()
    append(log, memoryview(leaders_bytes((0, 1))), Origin.REPLICATION)
    assert refused(leaders_bytes((1, 1)), log, Origin.REPLICATION) is ErrorCode.CORRUPT_MESSAGE


def test_a_follower_accepts_batches_beyond_its_own_size_limits() -> None:
    log = new_log(LogConfig(segment_bytes=50, max_message_bytes=10))
    append(log, memoryview(leaders_bytes((0, 1), (2, 1))), Origin.REPLICATION)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_follower_log_may_start_at_a_large_offset() -> None:
    log = new_log()
    append(log, memoryview(leaders_bytes((2**40, 3))), Origin.REPLICATION)
    assert (log.start_offset, log.end_offset) == (2**40, 2**40 + 2)
    append(log, memoryview(leaders_bytes((2**41, 3))), Origin.REPLICATION)
    assert [segment.base_offset for segment in log.segments] == [2**40, 2**41]
    assert sorted(read_values(log)) == [2**40, 2**40 + 1, 2**41, 2**41 + 1]


COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), moldau_max_decompressed_bytes=1 << 20)


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_batch_that_expands_too_much_is_refused_if_the_broker_must_read_it(compression: Compression) -> None:
    log = new_log(COMPACTED)
    bomb = batch_of([bytes(2 << 20)], compression=compression)
    with pytest.raises(BatchExpandsTooMuch, match="the records expand beyond 1048576 bytes") as refusal:
        append(log, bomb)
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    assert log.end_offset == 0
    append(log, batch_of([bytes(1 << 19)], compression=compression))


def test_a_batch_of_very_many_records_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "OPENED_RECORDS_MAX", 3)
    log = new_log(COMPACTED)
    append(log, batch_of([b"v"] * 3))
    with pytest.raises(BatchExpandsTooMuch, match="The batch has 4 records, at most 3 are read"):
        append(log, batch_of([b"v"] * 4))
