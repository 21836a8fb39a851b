"""The cost of a search by time: a batch may have millions of records, and its header a wrong timestamp."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.making_logs import NOW_MS, WatchedFiles, batch_of, here, new_log, offset_for_time, reopened_log, run_search
from harness.operations import operations_of

from moldau.base.errors import MalformedData
from moldau.base.promise import Promise
from moldau.base.turns import CHECKS_A_TURN
from moldau.log import time_search
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.time_index import TimestampOffset
from moldau.log.time_search import BATCHES_OPENED_MAX, TimeSearch
from moldau.wire.batch import stamp_create_time
from moldau.wire.compression import Compression
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

RECORDS = 5_000
LATER_MS = NOW_MS + 1_000


def append(log: Log, batch: bytes | bytearray | memoryview) -> None:
    log.append(memoryview(batch), leader_epoch=3, now_ms=NOW_MS)


def batch_with_wrong_max_timestamp() -> memoryview:
    batch = memoryview(bytearray(batch_of()))
    stamp_create_time(batch, LATER_MS)
    return batch


def many_records() -> bytearray:
    """The last one is the latest."""
    records = [Record(NEXT_OFFSET, NOW_MS + number, None, None) for number in range(RECORDS)]
    return bytearray(build_batch(records, compression=Compression.ZSTD))


def cost_of_search(log: Log, target_ms: int | None) -> int:
    return operations_of(lambda: offset_for_time(log, target_ms))


@pytest.mark.parametrize("target_ms", [NOW_MS + RECORDS - 1, None], ids=["time", "max timestamp"])
def test_a_batch_of_too_many_records_is_not_opened(monkeypatch: pytest.MonkeyPatch, target_ms: int | None) -> None:
    monkeypatch.setattr(time_search, "OPENED_RECORDS_MAX", RECORDS - 1)
    log = new_log()
    append(log, batch_of())
    append(log, many_records())
    assert offset_for_time(log, target_ms) == (NOW_MS + RECORDS - 1, 1, 3)
    assert cost_of_search(log, target_ms) < 1_000
    log.delete_records(9)
    assert offset_for_time(log, target_ms) == (NOW_MS + RECORDS - 1, 9, 3)


def test_a_batch_that_expands_too_much_is_not_read() -> None:
    log = new_log(LogConfig(moldau_max_decompressed_bytes=RECORDS))
    append(log, many_records())
    assert offset_for_time(log, NOW_MS + 7) == (NOW_MS + RECORDS - 1, 0, 3)
    assert cost_of_search(log, NOW_MS + 7) < 1_000


def test_only_records_up_to_the_one_that_is_found_are_decoded() -> None:
    log = new_log()
    append(log, many_records())
    assert offset_for_time(log, NOW_MS + 2) == (NOW_MS + 2, 2, 3)
    assert cost_of_search(log, NOW_MS + 2) < 1_000


def test_at_most_a_few_batches_with_wrong_timestamps_are_opened() -> None:
    log = new_log()
    for _ in range(BATCHES_OPENED_MAX):
        append(log, batch_with_wrong_max_timestamp())
    append(log, batch_of(timestamp=LATER_MS))
    assert offset_for_time(log, LATER_MS) == (LATER_MS, BATCHES_OPENED_MAX, 3)
    for _ in range(100):
        append(log, batch_with_wrong_max_timestamp())
    assert cost_of_search(log, LATER_MS) < 5_000
    log.delete_records(BATCHES_OPENED_MAX + 1)
    assert offset_for_time(log, LATER_MS) == (LATER_MS, 2 * BATCHES_OPENED_MAX + 1, 3)


def test_a_long_search_takes_several_turns() -> None:
    log = new_log()
    append(log, batch_of(timestamp=NOW_MS + 500))
    for _ in range(2 * CHECKS_A_TURN):
        append(log, batch_of(key=None))
    append(log, batch_of(timestamp=LATER_MS))
    opened = Promise[float]()

    def in_thread(open_batch: Callable[[], TimestampOffset | None]) -> TimeSearch:
        yield opened
        return open_batch()

    search = log.search_time(LATER_MS, in_thread)
    assert [next(search) for _ in range(3)] == [None, None, opened]
    assert run_search(search) == offset_for_time(log, LATER_MS) == (LATER_MS, 2 * CHECKS_A_TURN + 1, 3)
    first_turn = operations_of(lambda: next(log.search_time(LATER_MS, in_thread)))
    assert first_turn < 30 * CHECKS_A_TURN


@pytest.mark.parametrize("target_ms", [LATER_MS, None], ids=["time", "max timestamp"])
def test_a_turn_reads_the_indexes_of_one_segment(target_ms: int | None) -> None:
    """After a restart no segment's largest timestamp is known."""
    files, config = WatchedFiles(), LogConfig(segment_bytes=2 * len(batch_of()))
    log = reopened_log(files, [NOW_MS] * 20 + [LATER_MS], config, config)
    search = log.search_time(target_ms, here)
    files.time_indexes_read.clear()
    for _ in range(5):
        assert next(search) is None
        assert len(files.time_indexes_read) == 1
        files.time_indexes_read.clear()
    log.delete_records(15)
    log.delete_expired(NOW_MS, log.end_offset)
    assert run_search(search) == (LATER_MS, 20, 3)


def test_a_corrupt_batch_is_reported() -> None:
    log = new_log()
    append(log, batch_of())
    log.segments.active.file.pwrite(b"\xff", 70)
    with pytest.raises(MalformedData):
        offset_for_time(log, NOW_MS)
