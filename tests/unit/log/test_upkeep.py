"""Rolling, flushing, retention, truncation and closing of a log, also on disks that are full or fail."""

from __future__ import annotations

import errno
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from harness.depth import sample
from harness.making_logs import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    WatchedFiles,
    batch_of,
    load_store,
    new_log,
    read_values,
    reopened_log,
)

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.log import layout
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.testing.files import MemoryFiles

BATCH_BYTES = len(batch_of([b"x" * 100]))
DAY_MS = 24 * 3600 * 1000


def fill(log: Log, batches: int, *, timestamp: int = NOW_MS, epoch: int = 0, now_ms: int = NOW_MS) -> None:
    for _ in range(batches):
        log.append(batch_of([b"x" * 100], timestamp=timestamp), leader_epoch=epoch, now_ms=now_ms)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# --- roll -------------------------------------------------------------------------------------------------------


def test_rolls_when_the_next_batch_does_not_fit() -> None:
    log = new_log(LogConfig(segment_bytes=3 * BATCH_BYTES))
    fill(log, 7)
    assert bases(log) == [0, 3, 6]


def test_rolls_by_record_timestamps() -> None:
    log = new_log(LogConfig(segment_ms=1000))
    fill(log, 1, timestamp=NOW_MS - 5000)
    fill(log, 1, timestamp=NOW_MS - 4000, now_ms=NOW_MS + 10 * DAY_MS)
    assert bases(log) == [0], "the wall clock does not count if records have timestamps"
    fill(log, 1, timestamp=NOW_MS - 3999)
    assert bases(log) == [0, 2]


def test_rolls_by_the_wall_clock_for_records_without_timestamps() -> None:
    log = new_log(LogConfig(segment_ms=1000))
    fill(log, 1, timestamp=-1)
    fill(log, 1, timestamp=-1, now_ms=NOW_MS + 1000)
    fill(log, 1, timestamp=-1, now_ms=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_jitter_makes_some_segments_roll_earlier_and_never_later() -> None:
    log = new_log(LogConfig(segment_ms=1000, segment_jitter_ms=800))
    for step in range(200):
        fill(log, 1, timestamp=NOW_MS + 10 * step)
    starts = bases(log)
    lengths = {(after - before) * 10 for before, after in pairwise(starts)}
    assert len(lengths) > 1
    assert all(200 <= length <= 1010 for length in lengths)


def test_rolls_when_an_index_is_full() -> None:
    log = new_log(LogConfig(index_interval_bytes=1, segment_index_bytes=5 * 12))
    for step in range(13):
        fill(log, 1, timestamp=NOW_MS + step)
    assert len(bases(log)) > 1
    assert all(len(segment.time_index.entries) <= 5 * 12 for segment in log.segments)


def test_a_truncated_segment_has_space_in_its_indexes_again() -> None:
    log = new_log(LogConfig(index_interval_bytes=1, segment_index_bytes=5 * 12))
    for step in range(6):
        fill(log, 1, timestamp=NOW_MS + step)
    log.truncate_to(1)
    for step in range(5):
        fill(log, 1, timestamp=NOW_MS + step, epoch=1)
    assert bases(log) == [0], "six batches fit, as before the truncation"
    fill(log, 1, timestamp=NOW_MS + 6, epoch=1)
    assert bases(log) == [0, 6]


def test_rolling_an_empty_segment_does_nothing() -> None:
    log = new_log()
    log.roll(NOW_MS)
    fill(log, 1)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert bases(log) == [0, 1]


# --- flush ------------------------------------------------------------------------------------------------------


def test_the_recovery_point_moves_when_a_flush_is_finished() -> None:
    log = new_log()
    fill(log, 3)
    work = log.begin_flush()
    assert work is not None
    fill(log, 2)
    assert log.recovery_point == 0
    work.sync()
    assert log.recovery_point == 0
    log.finish_flush(work)
    assert log.recovery_point == 3
    log.flush()
    assert log.recovery_point == 5
    assert log.begin_flush() is None


def test_a_flush_begun_before_a_truncation_does_not_move_the_recovery_point() -> None:
    log = new_log()
    fill(log, 5)
    work = log.begin_flush()
    assert work is not None
    log.truncate_to(2)
    fill(log, 5, epoch=1)
    work.sync()
    log.finish_flush(work)
    assert log.recovery_point == 0


def test_flush_by_time_continues_when_the_clock_is_set_back() -> None:
    log = new_log(LogConfig(flush_ms=1000))
    log.flush()
    fill(log, 2)
    assert not log.flush_due(NOW_MS - 86_400_000)
    assert log.flush_due(NOW_MS - 86_400_000 + 1000)


def test_flush_is_due_by_count_by_time_and_after_a_roll() -> None:
    log = new_log(LogConfig(flush_messages=3, flush_ms=1000))
    log.flush()
    fill(log, 2)
    assert not log.flush_due(NOW_MS + 999)
    assert log.flush_due(NOW_MS + 1000)
    assert not log.flush_due(NOW_MS + 1001), "reported once per interval"
    assert log.flush_due(NOW_MS + 2000)
    fill(log, 1)
    assert log.flush_due(NOW_MS + 2001)
    log.flush()
    assert not log.flush_due(NOW_MS + 9999)
    fill(log, 1)
    assert not log.flush_due(NOW_MS + 10_998)
    log.roll(NOW_MS)
    assert log.flush_due(NOW_MS)


def test_a_failed_sync_is_never_tried_again() -> None:
    files = MemoryFiles()
    log = new_log(files=files)
    fill(log, 1)
    files.sync_fails = True
    work = log.begin_flush()
    assert work is not None
    with pytest.raises(StorageFault):
        work.sync()
    files.sync_fails = False
    with pytest.raises(StorageFault):
        log.begin_flush()
    assert log.fault is not None
    with pytest.raises(StorageFault):
        fill(log, 1)
    with pytest.raises(StorageFault):
        log.close()
    assert read_values(log) == {0: b"x" * 100}, "the records can still be read"


def test_a_flush_without_room_for_its_checkpoints_is_tried_again() -> None:
    files = MemoryFiles()
    log = new_log(LogConfig(segment_bytes=2 * BATCH_BYTES), files=files)
    fill(log, 3)
    files.bytes_left = 0
    work = log.begin_flush()
    assert work is not None
    with pytest.raises(StorageFault):
        work.sync()
    log.finish_flush(work)
    assert work.shortage is not None
    assert (log.fault, log.recovery_point) == (None, 0)
    assert log.flush_due(NOW_MS), "the segment that was rolled is still not on disk"
    files.bytes_left = None
    log.flush()
    assert log.recovery_point == 3
    after = load_store(files.crash(Random(1)))[0].get(PARTITION)
    assert after is not None
    assert (sorted(read_values(after)), after.epochs.latest_epoch) == ([0, 1, 2], 0)


# --- retention --------------------------------------------------------------------------------------------------


def test_retention_by_time_uses_the_latest_record_of_a_segment() -> None:
    log = new_log(LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=1000))
    for timestamp in (100, 900, 200, 300, 400, 500):
        fill(log, 1, timestamp=timestamp)
    assert log.delete_expired(1900, 6) == []
    assert [segment.base_offset for segment in log.delete_expired(1901, 6)] == [0, 2, 4]
    assert (log.start_offset, log.end_offset, bases(log)) == (6, 6, [6]), "the active segment was rolled away too"


def test_retention_reads_no_more_indexes_than_it_may_delete_segments() -> None:
    """After a restart the age of a segment is read from its indexes."""
    files, config = WatchedFiles(), LogConfig(segment_bytes=len(batch_of()))
    log = reopened_log(files, range(10), config, replace(config, retention_ms=1000))
    for first in (0, 3, 6):
        files.time_indexes_read.clear()
        assert [segment.base_offset for segment in log.delete_expired(NOW_MS, 10, 3)] == [first, first + 1, first + 2]
        assert len(files.time_indexes_read) == 3


def test_retention_stops_at_the_first_segment_that_stays() -> None:
    log = new_log(LogConfig(segment_bytes=BATCH_BYTES, retention_ms=1000))
    for timestamp in (100, 900, 200):
        fill(log, 1, timestamp=timestamp)
    assert [segment.base_offset for segment in log.delete_expired(1500, 3)] == [0]
    assert log.start_offset == 1


def test_retention_by_size_keeps_at_least_that_much() -> None:
    log = new_log(LogConfig(segment_bytes=BATCH_BYTES, retention_bytes=3 * BATCH_BYTES - 1, retention_ms=-1))
    fill(log, 6)
    assert len(log.delete_expired(NOW_MS, 6)) == 3
    assert log.size_bytes == 3 * BATCH_BYTES
    assert log.delete_expired(NOW_MS, 6) == []


def test_retention_deletes_nothing_at_or_above_the_high_watermark() -> None:
    log = new_log(LogConfig(segment_bytes=BATCH_BYTES, retention_ms=0))
    fill(log, 4, timestamp=1)
    assert [segment.base_offset for segment in log.delete_expired(NOW_MS, 2)] == [0, 1]
    assert log.start_offset == 2


@pytest.mark.parametrize("renames", range(8))
def test_retention_continues_after_the_disk_was_full(renames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename may need room in its directory. No deleted segment reappears, and no segment is missing in between."""
    files, config = MemoryFiles(), LogConfig(segment_bytes=BATCH_BYTES, retention_ms=1000)
    log = new_log(config, files)
    fill(log, 4, timestamp=1)
    fill(log, 1)
    rename, done = files.rename, []

    def refuse(source: str, target: str) -> None:
        if len(done) == renames:
            raise StorageFault(source, OSError(errno.ENOSPC, "full"))
        rename(source, target)
        done.append(target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", refuse)
        with pytest.raises(StorageFault):
            log.delete_expired(NOW_MS, 5)
    left = [name for name in sorted(files.names(log.directory)) if name.endswith(layout.LOG)]
    assert left == [f"{layout.offset_name(base)}{layout.LOG}" for base in bases(log)]
    assert bases(log)[0] == log.start_offset
    log.delete_expired(NOW_MS, 5)
    assert (bases(log), log.start_offset) == ([4], 4)
    store, _ = load_store(files.restart(), config)
    assert bases(store.get(PARTITION)) == [4]


def test_segments_below_the_log_start_offset_are_deleted_with_any_policy() -> None:
    config = LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=-1, cleanup_policy=frozenset({"compact"}))
    log = new_log(config)
    fill(log, 6)
    log.delete_records(3)
    assert (log.start_offset, bases(log)) == (3, [0, 2, 4])
    assert [segment.base_offset for segment in log.delete_expired(NOW_MS, 6)] == [0]
    assert (log.start_offset, bases(log)) == (3, [2, 4])
    assert sorted(read_values(log)) == [3, 4, 5]


def test_deleted_files_are_removed_after_their_delay() -> None:
    files = MemoryFiles()
    log = new_log(LogConfig(segment_bytes=BATCH_BYTES, retention_ms=1, file_delete_delay_ms=500), files)
    fill(log, 2)
    log.delete_expired(NOW_MS + 100, 1)
    log.flush()
    gone = {name for name in files.names(log.directory) if name.endswith(".deleted")}
    assert {name[:20] for name in gone} == {"0" * 20}
    assert log.purge(NOW_MS + 599) == len(gone)
    assert log.purge(NOW_MS + 600) == 0
    assert not any(name.endswith(".deleted") for name in files.names(log.directory))


def test_a_clock_set_back_delays_the_removal_of_files_by_at_most_their_delay() -> None:
    log = new_log(LogConfig(segment_bytes=BATCH_BYTES, retention_ms=1, file_delete_delay_ms=500))
    fill(log, 2)
    log.delete_expired(NOW_MS + 100, 1)
    log.flush()
    set_back_ms = NOW_MS - 86_400_000
    assert log.purge(set_back_ms) > 0
    assert log.purge(set_back_ms + 499) > 0
    assert log.purge(set_back_ms + 500) == 0


def test_delete_records_out_of_range() -> None:
    log = new_log()
    fill(log, 2)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(3)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records(2)
    log.delete_records(1)
    assert log.start_offset == 2, "a start offset never decreases"


# --- truncation -------------------------------------------------------------------------------------------------


def test_truncation_across_segments() -> None:
    log = new_log(LogConfig(segment_bytes=2 * BATCH_BYTES, index_interval_bytes=1))
    fill(log, 4, epoch=1)
    fill(log, 4, epoch=5)
    log.truncate_to(8)
    assert log.end_offset == 8
    log.truncate_to(3)
    assert (log.end_offset, bases(log), log.epochs.entries) == (3, [0, 2], ((1, 0),))
    fill(log, 3, epoch=6)
    assert sorted(read_values(log)) == [0, 1, 2, 3, 4, 5]
    assert log.epochs.entries == ((1, 0), (6, 3))
    log.truncate_to(2)
    assert (log.end_offset, bases(log)) == (2, [0])
    log.truncate_to(0)
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_truncation_removes_the_whole_batch() -> None:
    log = new_log()
    log.append(batch_of([b"a", b"b"]), leader_epoch=0, now_ms=NOW_MS)
    log.append(batch_of([b"c", b"d", b"e"]), leader_epoch=0, now_ms=NOW_MS)
    assert log.end_after_truncation(3) == 2
    log.truncate_to(3)
    assert log.end_offset == 2


def test_truncation_below_the_first_offset_empties_the_log() -> None:
    log = new_log(start_offset=100)
    fill(log, 3)
    log.truncate_to(40)
    assert (log.start_offset, log.end_offset, bases(log)) == (40, 40, [40])
    log.truncate_fully(77)
    fill(log, 1)
    assert sorted(read_values(log)) == [77]


def test_retention_frees_space_on_a_full_disk() -> None:
    """All segments are expired, but there is no space for a new one: the active segment stays."""
    files = MemoryFiles()
    log = new_log(LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=1000), files=files)
    fill(log, 5)
    assert bases(log) == [0, 2, 4]
    files.bytes_left = 0
    assert len(log.delete_expired(NOW_MS + 5000, high_watermark=5)) == 2
    assert (bases(log), log.start_offset, log.fault) == ([4], 4, None)
    files.bytes_left = None
    assert len(log.delete_expired(NOW_MS + 5000, high_watermark=5)) == 1
    assert (bases(log), log.start_offset) == ([5], 5)


# --- failing disks ----------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_no_partial_batch_and_writes_resume_with_free_space() -> None:
    files = MemoryFiles()
    log = new_log(files=files)
    fill(log, 2)
    files.bytes_left = BATCH_BYTES - 1
    with pytest.raises(StorageFault):
        fill(log, 1)
    assert (log.end_offset, log.size_bytes, files.size(log.segments.active.log_path)) == (
        2,
        2 * BATCH_BYTES,
        2 * BATCH_BYTES,
    )
    assert log.fault is None
    files.bytes_left = None
    fill(log, 1)
    assert sorted(read_values(log)) == [0, 1, 2]


@pytest.mark.parametrize("room", sample(range(0, 900, 7), 4))
def test_a_disk_that_fills_up_during_a_roll_loses_nothing(room: int) -> None:
    files = MemoryFiles()
    config = LogConfig(segment_bytes=2 * BATCH_BYTES, index_interval_bytes=1)
    store, _ = load_store(files, config)
    log = store.create(PARTITION, TOPIC_ID, config, NOW_MS)
    files.bytes_left = room
    with pytest.raises(StorageFault):
        fill(log, 20)
    acknowledged = log.end_offset
    assert acknowledged <= room // BATCH_BYTES
    files.bytes_left = None
    fill(log, 3)
    assert sorted(read_values(log)) == list(range(acknowledged + 3))
    store.close()
    reopened, report = load_store(files, config)
    assert report.recovered == []
    again = reopened.get(PARTITION)
    assert again is not None
    assert sorted(read_values(again)) == list(range(acknowledged + 3))


def test_short_writes_are_completed() -> None:
    files = MemoryFiles()
    files.write_bytes_max = 7
    log = new_log(LogConfig(segment_bytes=2 * BATCH_BYTES), files)
    fill(log, 5)
    assert sorted(read_values(log)) == [0, 1, 2, 3, 4]


def test_a_failed_write_that_cannot_be_truncated_stops_the_log() -> None:
    files = MemoryFiles()
    log = new_log(files=files)
    files.bytes_left = 10
    files.truncate_fails = True
    with pytest.raises(StorageFault):
        fill(log, 1)
    files.bytes_left = None
    files.truncate_fails = False
    with pytest.raises(StorageFault):
        fill(log, 1)
    assert log.fault is not None
    assert log.end_offset == 0


def test_a_closed_log_refuses_writes() -> None:
    log = new_log()
    fill(log, 1)
    log.close()
    with pytest.raises(StorageFault, match="closed"):
        fill(log, 1)
