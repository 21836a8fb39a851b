"""The metadata log: its own batches and those of a leader, diverging logs, and snapshots that survive a crash."""

from __future__ import annotations

from random import Random

import pytest
from harness.depth import deep

from moldau.base.errors import KafkaError
from moldau.base.ids import METADATA_TOPIC_UUID, TopicPartition
from moldau.base.topic_names import METADATA_TOPIC
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.raft.ports import EpochEnd
from moldau.raft.snapshots import SnapshotId, snapshot_batches
from moldau.raft.voters import static_voters
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.testing.files import MemoryFiles, PowerLoss
from moldau.wire.records import Record, build_batch, decode_records

METADATA = TopicPartition(METADATA_TOPIC, 0)
NOW_MS = 1_700_000_000_000


def open_metadata_log(files: MemoryFiles, segment_bytes: int = 2_000) -> MetadataLog:
    store = LogStore(files, "data")
    config = LogConfig(segment_bytes=segment_bytes)
    store.load(lambda _: config, NOW_MS)
    log = store.get(METADATA) or store.create(METADATA, METADATA_TOPIC_UUID, config, NOW_MS)
    return MetadataLog(log, store, files)


def append(log: MetadataLog, epoch: int, count: int = 1) -> None:
    for _ in range(count):
        log.append(build_batch([Record(0, NOW_MS, None, b"%08d" % log.end_offset)]), epoch, NOW_MS)


def values(log: MetadataLog, from_offset: int, to_offset: int) -> list[int]:
    found = []
    for header, batch in log.batches(from_offset, to_offset):
        found += [int(record.value or b"") for record in decode_records(batch, header)]
    return found


def test_batches_are_read_over_all_segments_and_only_within_the_offsets() -> None:
    log = open_metadata_log(MemoryFiles())
    append(log, 1, 200)
    assert len(log.log.segments) > 5
    for from_offset, to_offset in ((0, 200), (17, 18), (63, 140), (199, 200), (200, 200), (50, 50)):
        assert values(log, from_offset, to_offset) == list(range(from_offset, to_offset))


def test_a_leaders_batches_are_appended_unchanged_and_only_at_the_end_offset() -> None:
    leader, follower = open_metadata_log(MemoryFiles()), open_metadata_log(MemoryFiles())
    append(leader, 3, 5)
    append(leader, 4, 5)
    found = leader.read(0, 1 << 20)
    assert found is not None
    records = found.read()
    follower.append_from_leader(memoryview(records[:-7]), NOW_MS)
    assert (follower.end_offset, follower.last_epoch) == (9, 4), (
        "the batch that was cut short comes with the next fetch"
    )
    with pytest.raises(KafkaError):
        follower.append_from_leader(memoryview(records), NOW_MS)
    rest = leader.read(9, 1)
    assert rest is not None
    follower.append_from_leader(memoryview(rest.read()), NOW_MS)
    assert follower.log.epochs.entries == leader.log.epochs.entries


def test_the_end_of_an_epoch_is_found() -> None:
    log = open_metadata_log(MemoryFiles())
    assert log.end_of_epoch(5) == EpochEnd(0, 0)
    append(log, 1, 5)
    append(log, 3, 5)
    assert log.end_of_epoch(1) == EpochEnd(1, 5)
    assert log.end_of_epoch(2) == EpochEnd(1, 5)
    assert log.end_of_epoch(3) == EpochEnd(3, 10)
    assert log.end_of_epoch(9) == EpochEnd(3, 10), "an epoch above all known ones ends at the log end"


def test_a_truncation_removes_epochs_and_lowers_the_flushed_offset() -> None:
    log = open_metadata_log(MemoryFiles())
    append(log, 1, 5)
    append(log, 3, 5)
    log.log.flush()
    assert log.flushed_offset == 10
    log.truncate(4)
    assert (log.end_offset, log.flushed_offset, log.last_epoch) == (4, 4, 1)


def write_snapshot(log: MetadataLog, end_offset: int, epoch: int) -> bool:
    values = [b"v%d" % each for each in range(end_offset)]
    work = log.begin_snapshot(SnapshotId(end_offset, epoch), values, NOW_MS)
    if work is None:
        return False
    work.run()
    return log.finish_snapshot(work, NOW_MS)


def test_a_snapshot_that_was_overtaken_while_it_was_written_is_removed() -> None:
    files = MemoryFiles()
    log = open_metadata_log(files)
    append(log, 1, 10)
    slow = log.begin_snapshot(SnapshotId(4, 1), [b"old"], NOW_MS)
    assert slow is not None
    slow.run()
    assert write_snapshot(log, 8, 1)
    assert not log.finish_snapshot(slow, NOW_MS)
    assert log.latest_snapshot() == SnapshotId(8, 1)
    snapshots = [name for name in files.names(log.log.directory) if SnapshotId.of_file(name) is not None]
    assert snapshots == [SnapshotId(8, 1).file_name]


def test_the_two_newest_snapshots_are_kept_and_the_log_begins_at_the_older() -> None:
    log = open_metadata_log(MemoryFiles())
    append(log, 2, 100)
    assert write_snapshot(log, 100, 2)
    assert log.start_offset == 0, "a node that is a little behind needs no snapshot"
    append(log, 2, 50)
    assert write_snapshot(log, 150, 2)
    append(log, 3, 50)
    assert not write_snapshot(log, 120, 2), "there is a newer one"
    assert write_snapshot(log, 200, 3)
    assert (log.earliest_snapshot(), log.latest_snapshot()) == (SnapshotId(150, 2), SnapshotId(200, 3))
    assert log.start_offset == 150
    assert log.log.segments.first.base_offset == 150, "whole segments were deleted"
    assert values(log, 150, 200) == list(range(150, 200))
    assert list(log.read_snapshot(SnapshotId(200, 3))) == [b"v%d" % each for each in range(200)]
    assert log.snapshot_size(SnapshotId(100, 2)) is None
    assert log.end_of_epoch(2) == EpochEnd(2, 150), "below the log start only the snapshot has the epoch"


def test_complete_snapshots_are_found_after_a_restart_and_partial_ones_are_not() -> None:
    files = MemoryFiles()
    log = open_metadata_log(files)
    append(log, 1, 10)
    log.log.flush()
    assert write_snapshot(log, 10, 1)
    log.receive_snapshot(SnapshotId(20, 1)).append(b"half of it")
    found = open_metadata_log(files.restart())
    assert found.latest_snapshot() == SnapshotId(10, 1)
    assert not [name for name in files.names(found.log.directory) if name.endswith(".part")]


def snapshot_content(end_offset: int, epoch: int) -> bytes:
    return b"".join(snapshot_batches(epoch, [b"x"] * end_offset, last_contained_ms=0, now_ms=NOW_MS))


@pytest.mark.parametrize("spoil", ["cut", "flip", "tail"])
def test_an_incomplete_received_snapshot_is_refused(spoil: str) -> None:
    files = MemoryFiles()
    log = open_metadata_log(files)
    content = bytearray(snapshot_content(30, 2))
    if spoil == "cut":
        del content[len(content) * 2 // 3 :]
    elif spoil == "flip":
        content[len(content) // 2] ^= 1
    else:
        # Everything but the footer: all batches are complete, but the snapshot is not.
        del content[-80:]
    download = log.receive_snapshot(SnapshotId(30, 2))
    download.append(content)
    assert not download.check()
    assert log.latest_snapshot() is None
    assert open_metadata_log(files.restart()).latest_snapshot() is None


def test_after_a_received_snapshot_the_log_continues_at_its_end() -> None:
    log = open_metadata_log(MemoryFiles())
    append(log, 1, 10)
    log.log.flush()
    download = log.receive_snapshot(SnapshotId(500, 7))
    content = snapshot_content(500, 7)
    for position in range(0, len(content), 1_000):
        download.append(content[position : position + 1_000])
    assert download.check()
    download.freeze()
    log.truncate_to_snapshot()
    assert (log.start_offset, log.end_offset, log.last_epoch) == (500, 500, 7)
    assert log.end_of_epoch(7) == EpochEnd(7, 500)
    append(log, 8, 3)
    log.log.flush()
    assert log.flushed_offset == 503
    assert log.end_of_epoch(8) == EpochEnd(8, 503)


def test_a_snapshot_is_in_the_log_only_after_it_was_checked_and_frozen() -> None:
    files = MemoryFiles()
    log = open_metadata_log(files)
    download = log.receive_snapshot(SnapshotId(500, 7))
    download.append(snapshot_content(500, 7))
    with pytest.raises(AssertionError, match="only a snapshot that was checked"):
        download.freeze()
    assert download.check()
    assert log.latest_snapshot() is None
    download.abandon()
    assert not [name for name in files.names(log.log.directory) if "checkpoint" in name], "its file is removed"


def test_control_batches_of_a_snapshot_are_read_without_the_others() -> None:
    log = open_metadata_log(MemoryFiles())
    voters = static_voters({1: ("one", 9093)}, "CONTROLLER")
    values = [bytes(100_000)] * 60
    content = b"".join(snapshot_batches(7, values, last_contained_ms=0, now_ms=NOW_MS, kraft_version=1, voters=voters))
    download = log.receive_snapshot(SnapshotId(500, 7))
    download.append(content)
    assert download.check()
    download.freeze()
    read = list(log.snapshot_control_batches(SnapshotId(500, 7)))
    assert [header.is_control for header, _ in read] == [True, True]
    assert b"".join(bytes(batch) for _, batch in read) == content[: len(read[0][1])] + content[-len(read[1][1]) :]


def test_a_snapshot_of_a_later_epoch_replaces_the_log() -> None:
    """The log is longer, but its last batches were never committed."""
    log = open_metadata_log(MemoryFiles())
    append(log, 1, 600)
    log.log.flush()
    download = log.receive_snapshot(SnapshotId(500, 7))
    download.append(snapshot_content(500, 7))
    assert download.check()
    download.freeze()
    log.truncate_to_snapshot()
    assert (log.start_offset, log.end_offset, log.last_epoch, log.flushed_offset) == (500, 500, 7, 500)


@pytest.mark.parametrize("seed", range(deep(4, quick=12)))
def test_a_power_loss_during_a_received_snapshot_leaves_the_old_or_the_new_log(seed: int) -> None:
    rng = Random(seed)
    files = MemoryFiles()
    log = open_metadata_log(files)
    append(log, 1, 60)
    log.log.flush()
    append(log, 1, rng.randint(0, 60))
    files.power_lost_at = files.operations + rng.randint(0, 25)
    try:
        download = log.receive_snapshot(SnapshotId(300, 4))
        download.append(snapshot_content(300, 4))
        assert download.check()
        download.freeze()
        log.truncate_to_snapshot()
        append(log, 5, 3)
        log.log.flush()
    except PowerLoss:
        pass
    found = open_metadata_log(files.crash(rng))
    if found.latest_snapshot() is None:
        assert found.start_offset == 0
        assert found.end_offset >= 60, "flushed records are kept"
    else:
        assert found.start_offset == 300
        assert 300 <= found.end_offset <= 303
        assert found.last_epoch == (4 if found.end_offset == 300 else 5)
        append(found, 6, 2)
        assert values(found, 300, 310)[-2:] == [found.end_offset - 2, found.end_offset - 1]
