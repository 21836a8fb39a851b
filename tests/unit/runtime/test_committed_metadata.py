"""Snapshots that are loaded in turns: records fetched meanwhile are not skipped, and damage is reported."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.metadata.records import encode_record
from moldau.raft.snapshots import SnapshotId
from moldau.runtime.own_work import OwnWork
from moldau.runtime.quorum.committed_metadata import SHORTAGE_RETRY_MS, CommittedMetadata
from moldau.testing.clock import FakeTimers
from moldau.wire.batch import BatchHeader, read_header
from moldau.wire.log_records.metadata import TopicRecord
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

MANY = 2 * ITEMS_A_TURN


def topic(number: int) -> bytes:
    return encode_record(TopicRecord(f"topic-{number}", number.to_bytes(16, "big")))


class ShortLog:
    """A metadata log that begins at the end of its snapshot."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.snapshot: SnapshotId | None = None
        self.is_damaged = False
        self.refusals = 0
        """How often the snapshot cannot be opened."""
        self.damaged_from = ITEMS_A_TURN + 1
        self._batches: list[memoryview] = []

    def adopt(self, end_offset: int) -> None:
        """Take over a snapshot that has a topic for each offset below this."""
        self.start_offset, self.snapshot, self._batches = end_offset, SnapshotId(end_offset, 1), []

    def append(self, offset: int) -> None:
        record = Record(NEXT_OFFSET, 0, None, topic(offset))
        self._batches.append(memoryview(bytes(build_batch([record], base_offset=offset))))

    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshot

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        if self.refusals:
            self.refusals -= 1
            raise StorageFault("0.checkpoint", OSError(errno.EMFILE, "too many open files"))
        for number in range(snapshot.end_offset):
            if self.is_damaged and number >= self.damaged_from:
                raise MalformedData("a batch with a wrong CRC")
            yield topic(number)

    def batches(self, from_offset: int, to_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        for batch in self._batches:
            if from_offset <= read_header(batch).base_offset < to_offset:
                yield read_header(batch), batch


class MetadataHarness:
    def __init__(self) -> None:
        self.log = ShortLog()
        self.current = CurrentImage()
        self.timers = FakeTimers()
        self.faults: list[Exception] = []
        self.metadata = CommittedMetadata(self.log, self.current, OwnWork(self.timers, self.faults.append))  # type: ignore[arg-type]

    def topics(self) -> int:
        return len(self.current.image.topics)


def test_a_snapshot_that_is_fetched_while_an_earlier_one_is_loaded_is_loaded_too() -> None:
    harness = MetadataHarness()
    harness.log.adopt(MANY)
    harness.metadata.committed(MANY)
    assert harness.topics() == 0, "the snapshot is loaded in several turns"
    harness.log.adopt(2 * MANY)
    harness.log.append(2 * MANY)
    harness.metadata.committed(2 * MANY + 1)
    harness.timers.run_soon()
    assert harness.topics() == 2 * MANY + 1
    assert harness.current.image.offset == 2 * MANY
    assert not harness.faults


def test_damage_that_is_found_in_a_later_turn_is_reported() -> None:
    harness = MetadataHarness()
    harness.log.adopt(MANY)
    harness.log.is_damaged = True
    harness.metadata.committed(MANY)
    assert not harness.faults
    harness.timers.run_soon()
    assert [type(fault) for fault in harness.faults] == [MalformedData]
    assert harness.topics() == 0


def test_a_new_leader_reads_the_whole_snapshot_at_once() -> None:
    harness = MetadataHarness()
    harness.log.adopt(MANY)
    harness.log.append(MANY)
    harness.metadata.committed(MANY)
    harness.metadata.stop()
    image, _ = harness.metadata.read(MANY + 1)
    assert len(image.topics) == MANY + 1
    harness.timers.run_soon()
    assert harness.topics() == MANY, "the rest is not committed yet"


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_snapshot_that_cannot_be_opened_for_lack_of_descriptors_is_loaded_later(
    refusals: int, caplog: pytest.LogCaptureFixture
) -> None:
    harness = MetadataHarness()
    harness.log.adopt(MANY)
    harness.log.append(MANY)
    harness.log.refusals = refusals
    harness.metadata.committed(MANY + 1)
    harness.timers.run_soon()
    assert harness.topics() == 0
    for _ in range(refusals):
        harness.timers.advance(SHORTAGE_RETRY_MS)
    harness.timers.run_soon()
    assert harness.topics() == MANY + 1
    assert not harness.faults
    assert caplog.messages == ["the metadata cannot be read, retried every second: 0.checkpoint: too many open files"]


def test_nothing_is_loaded_later_once_it_is_stopped() -> None:
    harness = MetadataHarness()
    harness.log.adopt(MANY)
    harness.log.refusals = 1
    harness.metadata.committed(MANY)
    harness.metadata.stop()
    harness.timers.advance(SHORTAGE_RETRY_MS)
    assert harness.topics() == 0


def test_damage_found_in_the_first_turn_is_a_fault() -> None:
    harness = MetadataHarness()
    harness.log.adopt(MANY)
    harness.log.is_damaged, harness.log.damaged_from = True, 0
    harness.metadata.committed(MANY)
    assert [type(fault) for fault in harness.faults] == [MalformedData]
    with pytest.raises(MalformedData):
        harness.metadata.read(MANY)


@pytest.mark.parametrize("snapshot", [None, SnapshotId(3, 1)])
def test_records_missing_in_log_and_snapshot_are_an_error(snapshot: SnapshotId | None) -> None:
    harness = MetadataHarness()
    harness.log.adopt(5)
    harness.log.append(5)
    harness.log.snapshot = snapshot
    harness.metadata.committed(6)
    assert "begins at offset 5, and no snapshot reaches that far" in str(harness.faults)
    with pytest.raises(MalformedData):
        harness.metadata.read(6)
