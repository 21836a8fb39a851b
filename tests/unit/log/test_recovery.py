"""Opening logs with damaged side files (indexes, snapshots, checkpoints) or corrupt batches, without losing data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.making_logs import (
    NOW_MS,
    PARTITION,
    TOPIC_ID,
    batch_of,
    load_store,
    offset_for_time,
    read_batches,
    read_values,
)

from moldau.log import layout
from moldau.log.config import LogConfig
from moldau.log.files import Files
from moldau.log.log import Log
from moldau.log.reports import StoreReport
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import stamp

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)
DIRECTORY = "data/orders-0"
BATCHES = 20


def written(*, close: bool) -> MemoryFiles:
    """A log of several segments, with producers and leader epochs, stopped cleanly or not."""
    files = MemoryFiles()
    store, _ = load_store(files, CONFIG)
    log = store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    for number in range(BATCHES):
        batch = batch_of(
            [b"%d" % number * 30, b"second"],
            timestamp=NOW_MS + number,
            producer_id=1,
            producer_epoch=0,
            base_sequence=2 * number,
        )
        log.append(batch, leader_epoch=number // 7, now_ms=NOW_MS)
    if close:
        store.close({PARTITION: log.end_offset})
    else:
        log.flush()
        store.write_checkpoints({PARTITION: log.end_offset})
    return files.restart()


def opened(files: Files) -> tuple[Log, StoreReport]:
    store, report = load_store(files, CONFIG)
    log = store.get(PARTITION)
    assert log is not None
    return log, report


def check_whole(log: Log, batches: int = BATCHES) -> None:
    assert log.end_offset == 2 * batches
    assert sorted(read_values(log)) == list(range(2 * batches))
    for header, batch in read_batches(log):
        piece = log.read(header.last_offset, 1, log.end_offset)
        assert piece is not None
        assert piece.read() == batch
        assert log.epochs.epoch_for_offset(header.base_offset) == header.leader_epoch
        found = offset_for_time(log, header.max_timestamp)
        assert found == (header.max_timestamp, header.base_offset, header.leader_epoch)
    (producer,) = log.producers.active()
    assert producer.last_sequence == 2 * batches - 1
    appended = log.append(
        batch_of(producer_id=1, producer_epoch=0, base_sequence=2 * batches), leader_epoch=9, now_ms=NOW_MS
    )
    assert appended.first_offset == 2 * batches


def side_files() -> list[str]:
    files = written(close=True)
    inside = [f"{DIRECTORY}/{name}" for name in files.names(DIRECTORY) if not name.endswith(".log")]
    return sorted(inside) + [
        f"data/{name}" for name in (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS)
    ]


def remove(files: MemoryFiles, path: str) -> None:
    files.unlink(path)


def empty(files: MemoryFiles, path: str) -> None:
    files.open(path).truncate(0)


def halve(files: MemoryFiles, path: str) -> None:
    files.open(path).truncate(files.size(path) // 2)


def shorten(files: MemoryFiles, path: str) -> None:
    files.open(path).truncate(max(0, files.size(path) - 1))


def zero(files: MemoryFiles, path: str) -> None:
    files.open(path).pwrite(bytes(files.size(path)), 0)


def scramble(files: MemoryFiles, path: str) -> None:
    files.open(path).pwrite(bytes((7 * i + 11) % 256 for i in range(files.size(path) + 3)), 0)


DAMAGES = [remove, empty, halve, shorten, zero, scramble]


@pytest.mark.parametrize("close", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("path", side_files())
def test_a_log_opens_with_a_damaged_side_file(
    path: str, damage: Callable[[MemoryFiles, str], None], close: bool
) -> None:
    files = written(close=close)
    if files.exists(path):
        damage(files, path)
    check_whole(opened(files)[0])


@pytest.mark.parametrize("close", [True, False], ids=["clean", "unclean"])
def test_a_log_opens_without_any_side_file(close: bool) -> None:
    files = written(close=close)
    for path in side_files():
        files.unlink(path)
    check_whole(opened(files)[0])


def test_a_clean_start_reports_and_changes_nothing() -> None:
    files = written(close=True)
    before = {name: files.read(f"{DIRECTORY}/{name}") for name in files.names(DIRECTORY)}
    log, report = opened(files)
    assert report == StoreReport(was_clean=True, logs=1)
    assert {name: files.read(f"{DIRECTORY}/{name}") for name in files.names(DIRECTORY)} == before
    check_whole(log)


def active_path(files: MemoryFiles) -> str:
    return max(f"{DIRECTORY}/{name}" for name in files.names(DIRECTORY) if name.endswith(".log"))


@pytest.mark.parametrize("cut", [1, 40, 100, 137])
def test_a_partial_last_batch_is_truncated(cut: int) -> None:
    files = written(close=False)
    path = active_path(files)
    files.open(path).truncate(files.size(path) - cut)
    log, report = opened(files)
    lost = 1
    assert log.end_offset == 2 * (BATCHES - lost)
    (recovered,) = report.recovered
    assert recovered.bytes_cut > 0
    assert recovered.set_aside == []
    assert recovered.lost_durable, "the lost batch had been flushed"
    assert files.size(path) == log.segments.active.size
    check_whole(log, BATCHES - lost)


def test_a_partial_last_batch_after_a_clean_stop_is_truncated() -> None:
    files = written(close=True)
    path = active_path(files)
    files.open(path).truncate(files.size(path) - 5)
    log, report = opened(files)
    assert report.was_clean
    assert report.recovered[0].notes
    check_whole(log, BATCHES - 1)


def cut_last_batch(files: MemoryFiles, path: str) -> None:
    """Cut the file exactly before its last batch."""
    content = files.read(path)
    assert content is not None
    position, following = 0, 12 + int.from_bytes(content[8:12], "big")
    while following < len(content):
        position, following = following, following + 12 + int.from_bytes(content[following + 8 : following + 12], "big")
    files.open(path).truncate(position)


@pytest.mark.parametrize("close", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("damage", [remove, cut_last_batch], ids=lambda damage: damage.__name__)
def test_missing_synced_records_are_reported(damage: Callable[[MemoryFiles, str], None], close: bool) -> None:
    files = written(close=close)
    damage(files, active_path(files))
    log, report = opened(files)
    assert log.end_offset < 2 * BATCHES
    (recovered,) = report.recovered
    assert (recovered.lost_durable, recovered.bytes_cut, recovered.set_aside) == (True, 0, [])
    assert "the disk lost records that had been synced" in str(recovered)
    check_whole(log, log.end_offset // 2)


def test_garbage_after_the_last_batch_is_truncated() -> None:
    for garbage in (b"\0" * 500, b"\xff" * 61, b"x"):
        files = written(close=False)
        path = active_path(files)
        files.open(path).pwrite(garbage, files.size(path))
        log, report = opened(files)
        assert report.recovered[0].bytes_cut == len(garbage)
        assert not report.recovered[0].lost_durable
        check_whole(log)


def test_batches_after_a_corrupt_one_are_set_aside() -> None:
    files = written(close=False)
    files.unlink(f"data/{layout.RECOVERY_POINTS}")
    first = f"{DIRECTORY}/{0:020d}.log"
    content = files.read(first)
    assert content is not None
    size = 12 + int.from_bytes(content[8:12], "big")
    files.open(first).pwrite(b"\xaa", size + 70)
    later = sorted(name for name in files.names(DIRECTORY) if name.endswith(".log"))[1:]
    before = {name: files.read(f"{DIRECTORY}/{name}") for name in later}
    log, report = opened(files)
    assert log.end_offset == 2
    (recovered,) = report.recovered
    copy = f"{first}.{size}.corrupt"
    assert recovered.set_aside == [copy, *(f"{DIRECTORY}/{name}.corrupt" for name in later)]
    broken = bytearray(content[size:])
    broken[70] = 0xAA
    assert files.read(copy) == bytes(broken)
    for name, bytes_before in before.items():
        assert files.read(f"{DIRECTORY}/{name}.corrupt") == bytes_before
    check_whole(log, 1)


def test_a_full_disk_does_not_prevent_recovery() -> None:
    """Without indexes and snapshots, which recovery would write again, the batches are read instead."""
    files = written(close=False)
    for name in files.names(DIRECTORY):
        if name.endswith((layout.OFFSET_INDEX, layout.TIME_INDEX, layout.SNAPSHOT)):
            files.unlink(f"{DIRECTORY}/{name}")
    files.unlink(f"data/{layout.RECOVERY_POINTS}")
    files.bytes_left = 0
    log, report = opened(files)
    assert "no room for the producers' snapshot" in report.recovered[0].notes[0]
    assert len(read_batches(log)) == BATCHES, "readers are served"
    assert not any(name.endswith((layout.OFFSET_INDEX, layout.SNAPSHOT)) for name in files.names(DIRECTORY))
    files.bytes_left = None
    check_whole(log)


@pytest.mark.parametrize("room", [0, 100, 2000])
def test_a_log_without_room_for_its_corrupt_bytes_is_left_as_it_is(room: int) -> None:
    files = written(close=False)
    files.unlink(f"data/{layout.RECOVERY_POINTS}")
    first = f"{DIRECTORY}/{0:020d}.log"
    file = files.open(first)
    file.pwrite(b"\xaa", file.size() // 3)
    before = {name: files.read(f"{DIRECTORY}/{name}") for name in files.names(DIRECTORY) if name.endswith(".log")}
    files.bytes_left = min(room, file.size() // 3)
    store, report = load_store(files, CONFIG)
    assert store.get(PARTITION) is None
    (unreadable,) = report.unreadable
    assert "No space left on device; free some space there, and start again" in unreadable[1]
    assert {name: files.read(f"{DIRECTORY}/{name}") for name in before} == before
    files.bytes_left = None
    store.close()
    assert not any(layout.CORRUPT in name for name in files.names(DIRECTORY))
    _, report = opened(files.restart())
    assert not report.was_clean, "the next start has to recover it"
    assert report.recovered[0].set_aside


def test_a_corrupt_batch_below_the_recovery_point_does_not_stop_a_start() -> None:
    files = written(close=False)
    files.open(f"{DIRECTORY}/{0:020d}.log").pwrite(b"\xaa", 70)
    log, report = opened(files)
    assert report.recovered == []
    assert log.end_offset == 2 * BATCHES


@pytest.mark.parametrize("room", [0, 50, 500])
def test_a_log_is_closed_on_a_full_disk(room: int) -> None:
    """Indexes and the snapshot of producers are left out: the next start reads the batches instead."""
    files = written(close=False)
    store, _ = load_store(files, CONFIG)
    log = store.get(PARTITION)
    assert log is not None
    log.append(batch_of(producer_id=2, producer_epoch=0, base_sequence=0), leader_epoch=log.last_epoch, now_ms=NOW_MS)
    files.bytes_left = room
    log.close()
    files = files.restart()
    log, report = opened(files)
    assert (report.recovered, log.end_offset) == ([], 2 * BATCHES + 1)
    assert {each.producer_id: each.last_sequence for each in log.producers.active()} == {1: 2 * BATCHES - 1, 2: 0}
    assert len(read_batches(log)) == BATCHES + 1


def test_a_log_start_beyond_the_end_is_ignored() -> None:
    files = written(close=True)
    start = files.open(f"data/{layout.LOG_STARTS}", create=True)
    start.truncate(0)
    start.pwrite(b"0\n1\norders 0 99999\n", 0)
    log, report = opened(files)
    assert log.start_offset == 0
    assert "ignored log start offset 99999" in report.recovered[0].notes[0]
    check_whole(log)


def test_trailing_batches_of_an_older_epoch_are_dropped() -> None:
    files = written(close=False)
    stale = batch_of([b"old"])
    stamp(stale, 2 * BATCHES, 0)
    path = active_path(files)
    files.open(path).pwrite(stale, files.size(path))
    log, _ = opened(files)
    assert log.end_offset == 2 * BATCHES


def test_leftover_files_are_deleted() -> None:
    files = written(close=True)
    for name in (
        "00000000000000000099.index",
        "00000000000000000003.log.deleted",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000001.snapshot",
    ):
        files.open(f"{DIRECTORY}/{name}", create=True)
    kept = f"{DIRECTORY}/00000000000000000000.log.5.corrupt"
    files.open(kept, create=True)
    check_whole(opened(files)[0])
    assert files.exists(kept)
    assert not files.exists(f"{DIRECTORY}/00000000000000000099.index")
    assert not files.exists(f"{DIRECTORY}/00000000000000000003.log.deleted")
    assert not files.exists(f"{DIRECTORY}/leader-epoch-checkpoint.tmp")
    assert not files.exists(f"{DIRECTORY}/00000000000000000001.snapshot")


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_files_with_foreign_names_are_left_alone(has_snapshots: bool) -> None:
    files = written(close=True)
    if not has_snapshots:
        for name in files.names(DIRECTORY):
            if name.endswith(".snapshot"):
                files.unlink(f"{DIRECTORY}/{name}")
    foreign = [f"{DIRECTORY}/backup{suffix}" for suffix in (layout.SNAPSHOT, *layout.INDEX_FILES)]
    for path in foreign:
        files.open(path, create=True)
    check_whole(opened(files)[0])
    assert all(files.exists(path) for path in foreign)


def test_a_snapshot_with_an_impossible_offset_is_ignored() -> None:
    files = written(close=True)
    newest = max(name for name in files.names(DIRECTORY) if name.endswith(layout.SNAPSHOT))
    stray = f"{2**63:020d}{layout.SNAPSHOT}"
    files.open(f"{DIRECTORY}/{stray}", create=True)
    check_whole(opened(files)[0])
    assert {newest, stray} <= set(files.names(DIRECTORY))
