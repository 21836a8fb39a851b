"""Checkpoint files of a `LogStore`: truncations, deletions and crashes between computing and writing them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store

from moldau.base.ids import TopicPartition
from moldau.log import layout
from moldau.log.checkpoints import read_offsets
from moldau.log.config import LogConfig
from moldau.log.files import DiskFiles
from moldau.log.log import Log
from moldau.log.reserve import Reserve, ReservedFiles
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def filled_log(store: LogStore, count: int = 5) -> Log:
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    for number in range(count):
        log.append(batch_of([b"%d" % number]), leader_epoch=2, now_ms=NOW_MS)
    log.flush()
    return log


def test_checkpoints_computed_before_a_truncation_are_not_written_after_it(files: MemoryFiles) -> None:
    """Otherwise a recovery would trust bytes that were never synced."""
    store, _ = load_store(files)
    filled_log(store)
    store.write_checkpoints({PARTITION: 5})
    computed = store.checkpoints({PARTITION: 5})
    store.truncate(PARTITION, 2)
    for each in computed:
        store.write_checkpoint(each)
    assert read_offsets(files, f"{store.directory}/{layout.RECOVERY_POINTS}") == {PARTITION: 2}


def test_a_high_watermark_computed_before_a_truncation_is_not_written_after_it(files: MemoryFiles) -> None:
    """It may be above the recovery point. Otherwise uncommitted records would be visible after a crash."""
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    for number in range(5):
        log.append(batch_of([b"%d" % number]), leader_epoch=2, now_ms=NOW_MS)
    computed = store.checkpoints({PARTITION: 5})
    store.truncate(PARTITION, 2)
    for each in computed:
        store.write_checkpoint(each)
    assert not read_offsets(files, f"{store.directory}/{layout.HIGH_WATERMARKS}")


def test_checkpoints_of_a_deleted_log_are_not_written_for_its_successor(files: MemoryFiles) -> None:
    store, _ = load_store(files)
    filled_log(store).delete_records(4)
    store.write_checkpoints({PARTITION: 5})
    computed = store.checkpoints({PARTITION: 5})
    store.delete(PARTITION, bytes(16), NOW_MS)
    filled_log(store, 9)
    for each in computed:
        store.write_checkpoint(each)
    store, _ = load_store(files.restart())
    found = store.get(PARTITION)
    assert found is not None
    assert (found.start_offset, store.high_watermarks) == (0, {})


@pytest.mark.parametrize("is_prepared", [False, True])
def test_deleted_records_stay_deleted_if_another_topic_is_recreated_before_a_crash(
    files: MemoryFiles, is_prepared: bool
) -> None:
    store, _ = load_store(files)
    other = TopicPartition("other", 0)
    filled_log(store).delete_records(3)
    store.create(other, TOPIC_ID, LogConfig(), NOW_MS).flush()
    store.write_checkpoints({PARTITION: 5, other: 0})
    store.delete(other, bytes(16), NOW_MS)
    if is_prepared:
        preparation = store.prepare({other: TOPIC_ID}, NOW_MS)
        preparation.run()
        store.adopt(preparation)
    store.create(other, TOPIC_ID, LogConfig(), NOW_MS)
    store, _ = load_store(files.crash(Random(1)))
    found = store.get(PARTITION)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (3, 5)
    assert store.high_watermarks == {}


def test_a_truncation_lowers_the_checkpoints(files: MemoryFiles) -> None:
    """After an unclean election. Otherwise the new records would count as deleted, or as cleaned: a tombstone could be
    removed before the records that it deletes."""
    store, _ = load_store(files)
    log = filled_log(store)
    log.delete_records(4)
    log.cleaned_up_to = 4
    store.write_checkpoints({PARTITION: 5})
    store.truncate(PARTITION, 2)
    for number in range(5):
        log.append(batch_of([b"%d" % number]), leader_epoch=3, now_ms=NOW_MS)
    log.flush()
    store, _ = load_store(files.crash(Random(1)))
    found = store.get(PARTITION)
    assert found is not None
    assert (found.start_offset, found.cleaned_up_to, found.end_offset) == (2, 2, 7)
    assert store.high_watermarks == {PARTITION: 2}


def test_a_truncation_on_a_full_disk_deletes_the_checkpoints_that_it_cannot_lower(files: MemoryFiles) -> None:
    store, _ = load_store(files)
    log = filled_log(store)
    store.write_checkpoints({PARTITION: 5})
    files.bytes_left = 0
    store.truncate(PARTITION, 2)
    files.bytes_left = None
    for number in range(5):
        log.append(batch_of([b"%d" % number]), leader_epoch=3, now_ms=NOW_MS)
    log.flush()
    store, _ = load_store(files.crash(Random(1)))
    found = store.get(PARTITION)
    assert found is not None
    assert found.end_offset == 7
    assert store.high_watermarks.get(PARTITION, 0) <= 2, "not that of the records that were truncated"


def test_a_stop_on_a_full_disk_keeps_the_old_checkpoints_and_is_clean(files: MemoryFiles) -> None:
    files.mkdir("data")
    reserve = Reserve(files, "data", 1 << 20, lambda: (1 << 40, 1 << 40), lambda *_: None)
    reserve.fill()
    store, _ = load_store(ReservedFiles(files, "data", reserve))
    log = filled_log(store)
    store.write_checkpoints({PARTITION: 3})
    log.append(batch_of(), leader_epoch=log.last_epoch, now_ms=NOW_MS)
    log.flush()
    files.bytes_left = 0
    store.close({PARTITION: 6}, 7)
    store, report = load_store(files.restart())
    assert (report.was_clean, report.broker_epoch) == (True, 7)
    assert store.high_watermarks == {PARTITION: 3}


def test_a_truncation_lowers_a_log_start_that_only_the_checkpoint_has(files: MemoryFiles) -> None:
    """Retention has removed the first segment since the checkpoint, so the log begins with a segment."""
    store, _ = load_store(files)
    log = filled_log(store)
    log.delete_records(3)
    store.write_checkpoints({PARTITION: 5})
    log.roll(NOW_MS)
    log.delete_records(5)
    log.delete_expired(NOW_MS, high_watermark=5)
    assert len(log.segments) == 1
    store.truncate(PARTITION, 1)
    for number in range(5):
        log.append(batch_of([b"%d" % number]), leader_epoch=3, now_ms=NOW_MS)
    log.flush()
    start_offset = log.start_offset
    store, _ = load_store(files.crash(Random(1)))
    found = store.get(PARTITION)
    assert found is not None
    assert found.start_offset == start_offset == 1


def test_a_log_is_truncated_repeatedly_while_a_thread_writes_checkpoints(tmp_path: Path) -> None:
    store = LogStore(DiskFiles(), str(tmp_path))
    store.load(lambda _: LogConfig(), NOW_MS)
    log = filled_log(store, 60)
    with ThreadPoolExecutor(1) as thread:
        written = []
        for offset in range(59, 0, -1):
            written += [thread.submit(store.write_checkpoint, each) for each in store.checkpoints({PARTITION: offset})]
            store.truncate(PARTITION, offset)
    for each in written:
        each.result()
    assert read_offsets(DiskFiles(), f"{tmp_path}/{layout.RECOVERY_POINTS}") == {PARTITION: log.end_offset}
    store.abandon()
