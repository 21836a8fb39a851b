"""`Log.read`: where slices begin and end, and which need no disk read. `Log.search_time`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness.making_logs import NOW_MS, batch_of, new_log, offset_for_time, read_values

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.log.config import LogConfig
from moldau.log.files import DiskFiles
from moldau.log.log import Log
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFile
from moldau.wire.batch import split_batches

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=300)


def filled_log(batches: int = 40, config: LogConfig = SMALL) -> Log:
    """Batches of three records each."""
    log = new_log(config)
    for number in range(batches):
        batch = batch_of([b"%d-%d" % (number, i) for i in range(3)], timestamp=NOW_MS + number)
        log.append(batch, leader_epoch=number // 10, now_ms=NOW_MS)
    return log


def bases(log: Log, offset: int, max_bytes: int, up_to: int) -> list[int]:
    """Base offsets of the whole batches in a slice."""
    piece = log.read(offset, max_bytes, up_to)
    if piece is None:
        return []
    content = memoryview(piece.read())
    whole = 0
    while len(content) - whole >= 12 and whole + 12 + int.from_bytes(content[whole + 8 : whole + 12], "big") <= len(
        content
    ):
        whole += 12 + int.from_bytes(content[whole + 8 : whole + 12], "big")
    return [header.base_offset for header, _ in split_batches(content[:whole])]


def test_a_slice_begins_with_the_batch_of_its_offset() -> None:
    log = filled_log()
    assert len(log.segments) > 2
    for offset in range(log.end_offset):
        assert bases(log, offset, 1, log.end_offset) == [offset // 3 * 3]


def test_a_slice_ends_below_its_upper_offset() -> None:
    log = filled_log(6)
    assert bases(log, 0, 10_000, 9) == [0, 3, 6]
    assert bases(log, 0, 10_000, 10) == [0, 3, 6], "a batch that reaches the bound is not shown"
    assert bases(log, 0, 10_000, 12) == [0, 3, 6, 9]
    assert log.read(9, 10_000, 9) is None
    assert log.read(10, 10_000, 11) is None
    assert log.read(5, 10_000, 3) is None


def test_max_bytes_limits_all_but_the_first_batch() -> None:
    log = filled_log(6)
    size = len(batch_of([b"0-0", b"0-1", b"0-2"]))
    assert bases(log, 0, 2 * size, 18) == [0, 3]
    assert bases(log, 0, 2 * size - 1, 18) == [0]
    assert bases(log, 3, 1, 18) == [3]
    piece = log.read(0, 2 * size + 5, 18)
    assert piece is not None
    assert piece.length == 2 * size + 5, "the last batch may be cut"
    assert log.read(0, size - 1, 18, at_least_one=False) is None
    assert log.read(0, size, 18, at_least_one=False) is not None


def test_a_slice_stays_in_one_segment() -> None:
    log = filled_log()
    first, second = list(log.segments)[:2]
    assert bases(log, 0, 1 << 20, log.end_offset)[-1] == second.base_offset - 3
    assert bases(log, second.base_offset, 1 << 20, second.base_offset + 3) == [second.base_offset]
    piece = log.read(0, 1 << 20, log.end_offset)
    assert piece is not None
    assert piece.length == first.size


def test_offsets_out_of_range_are_refused() -> None:
    log = filled_log(4)
    assert log.read(12, 100, 12) is None
    assert log.read(12, 100, 99) is None
    log.delete_records(5)
    for offset in (-1, 0, 4, 13):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, 12)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert bases(log, 5, 1, 12) == [3]


def test_tail_reads_and_high_watermarks_touch_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled_log(100, LogConfig())

    def refuse(*_: object) -> bytes:
        raise AssertionError("the disk was read")

    monkeypatch.setattr(MemoryFile, "pread", refuse)
    for back in range(3, 90, 3):
        assert log.read(300 - back, 1 << 20, 300) is not None
        assert log.read(300 - back, 1 << 20, 300 - back + 3) is not None
    assert log.read(297, 1 << 20, 10**9) is not None
    assert log.read(300, 1 << 20, 300) is None


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    store = LogStore(DiskFiles(), str(tmp_path))
    config = LogConfig(segment_bytes=200, retention_ms=1, file_delete_delay_ms=0)
    log = store.create(TopicPartition("t", 0), bytes(16), config, NOW_MS)
    batch = batch_of([b"keep me" * 10])
    content = bytearray(batch)
    log.append(batch, leader_epoch=0, now_ms=NOW_MS)
    log.append(batch_of([b"x" * 100]), leader_epoch=0, now_ms=NOW_MS)
    piece = log.read(0, 1000, 2)
    assert piece is not None
    assert len(log.delete_expired(NOW_MS + 1000, 2)) == 2
    log.flush()
    log.purge(NOW_MS + 1000)
    assert not any(name.endswith(".deleted") for name in os.listdir(log.directory))
    content[12:16] = bytes(4)
    assert piece.read() == bytes(content)
    descriptor = piece.file.fileno()
    del piece
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_damage_in_an_old_segment_is_reported_as_corrupt() -> None:
    log = filled_log()
    segment = next(iter(log.segments))
    segment.file.pwrite(b"\xff\xff\xff\xff", 8)
    with pytest.raises(KafkaError) as caught:
        log.read(7, 100, 20)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("at", [0, 8], ids=["the first batch", "a batch in the middle"])
@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"])
def test_an_impossible_batch_length_is_reported_as_corrupt(at: int, length: bytes) -> None:
    log = filled_log(config=LogConfig(segment_bytes=2000))
    assert len(log.segments) > 2
    segment = next(iter(log.segments))
    position, base_offset, _ = segment.locate(3 * at) or (0, 0, 0)
    assert base_offset == 3 * at
    segment.file.pwrite(length, position + 8)
    for offset in range(base_offset, base_offset + 6):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, log.end_offset)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE, offset


def test_a_damaged_length_of_the_first_batch_is_reported_as_corrupt() -> None:
    log = filled_log(6)
    log.segments.active.file.pwrite(b"\x7f", 8)
    with pytest.raises(KafkaError) as caught:
        log.read(0, 100, log.end_offset)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


# --- by time ----------------------------------------------------------------------------------------------------


def test_offset_for_time() -> None:
    log = filled_log()
    assert offset_for_time(log, 0) == (NOW_MS, 0, 0)
    for number in range(40):
        assert offset_for_time(log, NOW_MS + number) == (NOW_MS + number, number * 3, number // 10)
    assert offset_for_time(log, NOW_MS + 40) is None
    assert offset_for_time(log, NOW_MS + 20) == (NOW_MS + 20, 60, 2)
    log.delete_records(10)
    assert offset_for_time(log, 0) == (NOW_MS + 3, 10, 0)
    assert offset_for_time(log, None) == (NOW_MS + 39, 117, 3)


def test_offset_for_time_of_unordered_timestamps() -> None:
    log = new_log(SMALL)
    for number, timestamp in enumerate((50, 10, 90, 90, 20)):
        log.append(batch_of([b"%d" % number], timestamp=timestamp), leader_epoch=0, now_ms=NOW_MS)
    assert offset_for_time(log, 51) == (90, 2, 0)
    assert offset_for_time(log, 15) == (50, 0, 0)
    assert offset_for_time(log, None) == (90, 2, 0)


def test_offset_for_time_without_timestamps() -> None:
    log = new_log()
    assert offset_for_time(log, None) is None
    log.append(batch_of(timestamp=-1), leader_epoch=0, now_ms=NOW_MS)
    assert offset_for_time(log, None) is None
    assert offset_for_time(log, 0) is None
    assert read_values(log) == {0: b"value"}
