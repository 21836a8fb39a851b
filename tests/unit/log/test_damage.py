"""Which logs count as damaged when they are opened, and which only look unusual."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO

import pytest
from harness.cleaning_histories import History
from harness.depth import deep
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store, read_values

from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.topic_names import METADATA_TOPIC
from moldau.log import layout
from moldau.log.config import LogConfig
from moldau.log.files import Files
from moldau.log.log import Log
from moldau.log.segment import RELATIVE_OFFSET_MAX
from moldau.log.store import LogStore
from moldau.log.txn_index import AbortedTxn
from moldau.log.validate import Origin
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import stamp

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, retention_bytes=0, file_delete_delay_ms=0)
DIRECTORY = f"data/{PARTITION}"
BATCHES = 20


def fill(log: Log, batches: int = BATCHES, first_epoch: int = 0) -> None:
    for number in range(batches):
        log.append(batch_of([b"%d" % number * 20]), leader_epoch=first_epoch + number // 7, now_ms=NOW_MS)


def new_store(partition: TopicPartition = PARTITION) -> tuple[LogStore, Log]:
    store, _ = load_store(MemoryFiles(), CONFIG)
    log = store.create(partition, TOPIC_ID, CONFIG, NOW_MS)
    fill(log)
    return store, log


def killed(store: LogStore) -> MemoryFiles:
    """Return what the process leaves on the disk: everything that it wrote."""
    files = store._files
    assert isinstance(files, MemoryFiles)
    return files.restart()


def store_on_disk() -> tuple[LogStore, Log]:
    store, log = new_store()
    log.flush()
    store.write_checkpoints({PARTITION: log.end_offset})
    return store, log


def flushed_and_killed() -> MemoryFiles:
    return killed(store_on_disk()[0])


def stopped() -> MemoryFiles:
    store, log = new_store()
    store.close({PARTITION: log.end_offset})
    return killed(store)


def unflushed_and_killed() -> MemoryFiles:
    """Only the high watermark is on disk: recovery reads everything."""
    store, log = new_store()
    store.write_checkpoints({PARTITION: log.end_offset})
    return killed(store)


def damage_of(files: Files) -> list[str]:
    return load_store(files, CONFIG)[1].damage


def logs_in(files: MemoryFiles) -> list[str]:
    return sorted(f"{DIRECTORY}/{name}" for name in files.names(DIRECTORY) if name.endswith(layout.LOG))


# --- damage -------------------------------------------------------------------------------------------------------


def cut_within_a_batch(files: MemoryFiles) -> None:
    path = logs_in(files)[-1]
    files.open(path).truncate(files.size(path) - 7)


def cut_between_batches(files: MemoryFiles) -> None:
    files.open(logs_in(files)[-1]).truncate(0)


def overwrite_the_end(files: MemoryFiles) -> None:
    path = logs_in(files)[-1]
    files.open(path).pwrite(b"\xa5" * 200, files.size(path) - 200)


def write_garbage_behind_the_end(files: MemoryFiles) -> None:
    path = logs_in(files)[-1]
    files.open(path).pwrite(b"\xa5" * 30, files.size(path))


def remove_the_last_segment(files: MemoryFiles) -> None:
    files.unlink(logs_in(files)[-1])


def remove_the_last_segments(files: MemoryFiles) -> None:
    for path in logs_in(files)[2:]:
        files.unlink(path)


def remove_the_first_segment(files: MemoryFiles) -> None:
    files.unlink(logs_in(files)[0])


def remove_all_segments(files: MemoryFiles) -> None:
    for path in logs_in(files):
        files.unlink(path)


def remove_everything_in_the_directory(files: MemoryFiles) -> None:
    for name in files.names(DIRECTORY):
        files.unlink(f"{DIRECTORY}/{name}")


def scramble_a_checkpoint(files: MemoryFiles) -> None:
    files.open(f"data/{layout.HIGH_WATERMARKS}").pwrite(b"\xa5", 0)


DAMAGES = [
    cut_within_a_batch,
    cut_between_batches,
    overwrite_the_end,
    write_garbage_behind_the_end,
    remove_the_last_segment,
    remove_the_last_segments,
    remove_all_segments,
    remove_everything_in_the_directory,
    scramble_a_checkpoint,
]
STOPS = [stopped, flushed_and_killed, unflushed_and_killed]
Damage = Callable[[MemoryFiles], None]
Stop = Callable[[], MemoryFiles]


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.__name__)
def test_a_log_that_has_everything_is_not_damaged(stop: Stop) -> None:
    assert damage_of(stop()) == []


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.__name__)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_log_that_lacks_records_is_damaged(damage: Damage, stop: Stop) -> None:
    files = stop()
    damage(files)
    assert len(damage_of(files)) == 1


@pytest.mark.parametrize("stop", [stopped, flushed_and_killed], ids=lambda stop: stop.__name__)
def test_a_missing_first_segment_is_damage(stop: Stop) -> None:
    files = stop()
    remove_the_first_segment(files)
    first = layout.offset_of(logs_in(files)[0].removeprefix(f"{DIRECTORY}/"), layout.LOG)
    store, report = load_store(files, CONFIG)
    assert first is not None
    assert report.damage == [f"{PARTITION}: the records from offset 0 to {first - 1} are missing"]
    log = store.get(PARTITION)
    assert log is not None
    assert log.whole_below == 0
    assert min(read_values(log)) == log.start_offset == first, "a leader without followers goes on with what it has"


def test_a_missing_first_segment_is_damage_until_it_is_fetched_again() -> None:
    files = flushed_and_killed()
    remove_the_first_segment(files)
    store, _ = load_store(files, CONFIG)
    store.close({PARTITION: BATCHES})
    store, report = load_store(killed(store), CONFIG)
    assert report.damage
    store.truncate(PARTITION, 0)
    log = store.get(PARTITION)
    assert log is not None
    assert (log.start_offset, log.end_offset, log.whole_below) == (0, 0, None)
    fill(log)
    store.close({PARTITION: BATCHES})
    assert damage_of(killed(store)) == []


@pytest.mark.parametrize("place", [1, 2])
def test_a_missing_segment_below_the_recovery_point_is_damage(place: int) -> None:
    files = flushed_and_killed()
    bases = [layout.offset_of(path.removeprefix(f"{DIRECTORY}/"), layout.LOG) for path in logs_in(files)]
    files.unlink(logs_in(files)[place])
    start, end = bases[place], bases[place + 1]
    assert start is not None
    assert end is not None
    store, report = load_store(files, CONFIG)
    assert report.damage == [f"{PARTITION}: the records from offset {start} to {end - 1} are missing"]
    log = store.get(PARTITION)
    assert log is not None
    assert (log.whole_below, log.end_offset) == (start, BATCHES)


def test_a_clean_stop_does_not_hide_a_gap_that_was_found() -> None:
    store, log = store_on_disk()
    files = killed(store)
    files.unlink(log.segments.at(1).log_path)
    store, report = load_store(files, CONFIG)
    assert report.damage
    store.close()
    _, report = load_store(killed(store), CONFIG)
    assert report.damage, "nobody has fetched the missing records yet"


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("cut", [1, 100, 10_000])
def test_an_older_segment_that_is_too_short_is_damage(cut: int, has_index: bool) -> None:
    files = flushed_and_killed()
    path = logs_in(files)[1]
    files.open(path).truncate(max(0, files.size(path) - cut))
    if not has_index:
        files.unlink(path.removesuffix(layout.LOG) + layout.OFFSET_INDEX)
    assert len(damage_of(files)) == 1


def test_an_empty_segment_behind_a_lost_one_is_damage() -> None:
    store, log = new_store()
    log.roll(NOW_MS)
    files = killed(store)
    files.unlink(logs_in(files)[-2])
    assert len(damage_of(files)) == 1


def test_a_partition_that_cannot_be_read_is_damage() -> None:
    files = flushed_and_killed()
    for name in files.names(DIRECTORY):
        if name.endswith(layout.SNAPSHOT):
            files.unlink(f"{DIRECTORY}/{name}")
    files.open(logs_in(files)[0]).pwrite(b"\xa5" * 100, 0)
    damage = damage_of(files)
    assert f"{DIRECTORY} cannot be read" in damage


def test_the_metadata_log_does_not_count() -> None:
    partition = TopicPartition(METADATA_TOPIC, 0)
    store, _ = new_store(partition=partition)
    files = killed(store)
    path = f"data/{partition}/{layout.offset_name(0)}{layout.LOG}"
    files.open(path).truncate(files.size(path) - 7)
    cuts: list[None] = []
    report = LogStore(files, "data").load(lambda _: CONFIG, NOW_MS, lambda: cuts.append(None))
    assert report.recovered[0].damage
    assert (report.damage, cuts) == ([], [])


def test_the_damage_is_announced_before_recovery_removes_its_traces() -> None:
    """The process may be killed at any time, and the next one would find a whole log."""
    files = unflushed_and_killed()
    cut_within_a_batch(files)
    path = logs_in(files)[-1]
    sizes: list[int] = []
    before = files.size(path)
    LogStore(files, "data").load(lambda _: CONFIG, NOW_MS, lambda: sizes.append(files.size(path)))
    assert sizes == [before]
    assert files.size(path) < before


def test_missing_segments_are_announced_before_a_new_one_is_created() -> None:
    files = unflushed_and_killed()
    remove_all_segments(files)
    found: list[list[str]] = []
    LogStore(files, "data").load(lambda _: CONFIG, NOW_MS, lambda: found.append(logs_in(files)))
    assert found == [[]]


# --- no damage ----------------------------------------------------------------------------------------------------


def test_a_missing_checkpoint_is_no_damage() -> None:
    """A directory looks like this after `forget`, or when it is new."""
    files = flushed_and_killed()
    for name in (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS, layout.CLEANER_OFFSETS):
        files.unlink(f"data/{name}")
    assert damage_of(files) == []


def test_new_logs_are_not_damaged() -> None:
    store, _ = load_store(MemoryFiles(), CONFIG)
    log = store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    assert damage_of(killed(store)) == []
    log.epochs.assign(3, 0)  # as a leader does before its first append
    log.flush()
    store.write_checkpoints({PARTITION: 0})
    assert damage_of(killed(store)) == []


def test_segments_that_retention_deleted_are_not_missing() -> None:
    store, log = store_on_disk()
    assert log.delete_expired(NOW_MS, log.end_offset)
    assert damage_of(killed(store)) == [], "their files wait to be removed"
    log.flush()
    log.purge(NOW_MS)
    assert damage_of(killed(store)) == []


def test_deleted_segments_are_not_missing_if_the_epochs_were_not_written_since() -> None:
    store, log = store_on_disk()
    log.delete_records(log.end_offset)
    assert log.delete_expired(NOW_MS, log.end_offset)
    assert log.purge(NOW_MS) > 0, "their files wait for the epochs"
    files = killed(store)
    assert damage_of(files) == []
    assert damage_of(files.restart()) == [], "the start has removed the files"
    log.flush()
    assert log.purge(NOW_MS) == 0
    assert damage_of(killed(store)) == []


def test_deleted_segments_are_not_missing_if_there_is_no_room_for_the_epochs() -> None:
    store, log = store_on_disk()
    files = store._files
    assert isinstance(files, MemoryFiles)
    assert log.delete_expired(NOW_MS, log.end_offset)
    files.bytes_left = 0
    with pytest.raises(StorageFault):
        log.flush()
    assert log.purge(NOW_MS) == 0, "their room is needed"
    files.bytes_left = None
    assert damage_of(killed(store)) == []


def test_deleted_segments_give_their_room_back_if_no_flush_can_begin() -> None:
    """There is no room for the index of aborted transactions, so that flushes fail before the epochs are written."""
    store, log = store_on_disk()
    files = store._files
    assert isinstance(files, MemoryFiles)
    files.bytes_left = 0
    with pytest.raises(StorageFault):
        log.segments.active.txn_index.append(AbortedTxn(7, 1, 9, 10))
    assert log.delete_expired(NOW_MS, log.end_offset)
    with pytest.raises(StorageFault):
        log.begin_flush()
    assert log.purge(NOW_MS) == 0
    files.bytes_left = None
    assert damage_of(killed(store)) == []


def test_deleted_segments_of_a_log_that_is_not_flushed_any_more_are_removed() -> None:
    store, log = store_on_disk()
    log.fault = StorageFault(DIRECTORY, OSError(EIO, "the disk failed"))
    assert log.delete_expired(NOW_MS, log.end_offset)
    assert log.purge(NOW_MS) == 0
    assert damage_of(killed(store)) == []


def test_a_start_on_a_full_disk_removes_deleted_segments_and_does_not_miss_them_later() -> None:
    store, log = store_on_disk()
    assert log.delete_expired(NOW_MS, log.end_offset)
    files = killed(store)
    files.bytes_left = 0
    assert damage_of(files) == []
    assert not [name for name in files.names(DIRECTORY) if name.endswith(".deleted")]
    files.bytes_left = None
    assert damage_of(files.restart()) == []


def test_records_that_were_deleted_are_not_missing() -> None:
    store, log = store_on_disk()
    log.delete_records(12)
    store.write_checkpoints({PARTITION: log.end_offset})
    assert log.delete_expired(NOW_MS, 12)
    log.purge(NOW_MS)
    assert damage_of(killed(store)) == []


@pytest.mark.parametrize("offset", [19, 11, 3, 0])
def test_truncated_records_are_not_missing(offset: int) -> None:
    store, log = store_on_disk()
    store.truncate(PARTITION, offset)
    assert damage_of(killed(store)) == []
    fill(log, 2, first_epoch=9)
    assert damage_of(killed(store)) == []


@pytest.mark.parametrize("offset", [3, 500])
def test_a_restarted_log_is_not_damaged(offset: int) -> None:
    store, log = store_on_disk()
    store.truncate_fully(PARTITION, offset)
    assert damage_of(killed(store)) == []
    fill(log)
    assert damage_of(killed(store)) == []
    log.flush()
    store.write_checkpoints({PARTITION: log.end_offset})
    assert damage_of(killed(store)) == []


def test_a_deleted_partition_is_not_missing() -> None:
    store, _ = store_on_disk()
    store.delete(PARTITION, bytes(16), NOW_MS)
    assert damage_of(killed(store)) == []
    store.create(PARTITION, bytes(16), CONFIG, NOW_MS)
    assert damage_of(killed(store)) == []


def test_a_gap_that_no_index_can_express_is_not_missing() -> None:
    store, log = store_on_disk()
    far = batch_of()
    stamp(far, log.end_offset + RELATIVE_OFFSET_MAX + 7, 5)
    log.append(far, leader_epoch=-1, now_ms=NOW_MS, origin=Origin.REPLICATION)
    fill_behind = batch_of([b"x" * 400])
    stamp(fill_behind, log.end_offset, 5)
    log.append(fill_behind, leader_epoch=-1, now_ms=NOW_MS, origin=Origin.REPLICATION)
    log.flush()
    store.write_checkpoints({PARTITION: log.end_offset})
    assert len(log.segments) > 2
    assert damage_of(killed(store)) == []


@pytest.mark.parametrize("seed", range(deep(1, quick=4)))
def test_a_compacted_log_is_not_damaged(seed: int) -> None:
    history = History(f"damage {seed}")
    for _ in range(3):
        history.write(40)
        history.clean()
    history.log.flush()
    history.store.write_checkpoints({PARTITION: history.log.end_offset})
    assert damage_of(history.files.restart()) == []
