"""`FollowerLog`: how a follower appends to, truncates and restarts its log, and what a power failure leaves of it."""

from __future__ import annotations

from random import Random

import pytest
from harness.depth import deep
from harness.in_memory_node import HeldFlusher, batch, error_of

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.log.walk import walk_batches
from moldau.metadata.image import PartitionState
from moldau.replica.follower_log import FollowerLog, drop_newer_epochs
from moldau.replica.partition import Partition
from moldau.testing.clock import START_MS
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import has_valid_crc

NAME = TopicPartition("a", 0)
STATE = PartitionState(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=5, partition_epoch=0)
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def leader_batch(base_offset: int, count: int, epoch: int = 5, **header: int) -> bytes:
    """Return a batch as a leader sends it, with its base offset and leader epoch."""
    data = batch(count, base_offset=base_offset, **header)
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


class FollowerSetup:
    def __init__(self, config: LogConfig | None = None) -> None:
        self.files = MemoryFiles()
        self.store = LogStore(self.files, "data")
        log = self.store.create(NAME, bytes(16), config or LogConfig(), START_MS)
        self.flusher = HeldFlusher()
        self.partition = Partition(NAME, bytes(16), log, STATE, 1, 1, 0, self.flusher)
        self.partition.become_follower(STATE)
        self.reports: list[str] = []
        self.follower = FollowerLog(self.store, self.reports.append)

    def append(self, *batches: bytes) -> None:
        self.follower.append_from_leader(self.partition, memoryview(b"".join(batches)), START_MS)

    @property
    def range(self) -> tuple[int, int]:
        return self.partition.log.start_offset, self.partition.log.end_offset


def test_whole_batches_are_appended_unchanged() -> None:
    setup = FollowerSetup()
    setup.append(leader_batch(0, 3), leader_batch(3, 2), leader_batch(5, 4)[:-1])
    assert setup.range == (0, 5)
    setup.append()
    assert setup.range == (0, 5)
    assert setup.partition.log.epochs.entries == ((5, 0),)


@pytest.mark.parametrize(
    "broken", [leader_batch(3, 1)[:-1] + b"!", leader_batch(1, 1), leader_batch(3, 1)[:8] + bytes(60)]
)
def test_a_broken_batch_or_a_gap_is_refused(broken: bytes) -> None:
    setup = FollowerSetup()
    setup.append(leader_batch(0, 3))
    assert error_of(setup.append, broken) is ErrorCode.CORRUPT_MESSAGE
    assert setup.range == (0, 3)


@pytest.mark.parametrize(
    ("index_interval_bytes", "code"),
    [(1, ErrorCode.KAFKA_STORAGE_ERROR), (1 << 20, ErrorCode.CORRUPT_MESSAGE)],
    ids=["found by the replay of producers", "found by the search for the offset"],
)
def test_a_truncation_behind_a_damaged_batch_is_an_error_of_its_partition(
    index_interval_bytes: int, code: ErrorCode
) -> None:
    setup = FollowerSetup(LogConfig(index_interval_bytes=index_interval_bytes))
    setup.append(*(leader_batch(offset, 1, base_sequence=offset, **PRODUCER) for offset in range(4)))
    setup.files.open("data/a-0/00000000000000000000.log").pwrite(bytes(30), 0)
    assert error_of(setup.follower.truncate, setup.partition, 2) is code


def test_a_failed_write_is_a_storage_error() -> None:
    setup = FollowerSetup()
    setup.files.bytes_left = 0
    assert error_of(setup.append, leader_batch(0, 1)) is ErrorCode.KAFKA_STORAGE_ERROR


def test_batches_of_a_later_leader_epoch_are_not_appended() -> None:
    """The later leader may have truncated what precedes them in the same response (KAFKA-18723)."""
    whole = leader_batch(0, 1) + leader_batch(1, 1, epoch=6) + leader_batch(2, 1, epoch=6)
    assert bytes(drop_newer_epochs(memoryview(whole), 5)) == leader_batch(0, 1)
    assert bytes(drop_newer_epochs(memoryview(whole), 6)) == whole
    setup = FollowerSetup()
    setup.append(whole)
    assert setup.range == (0, 1)


def test_a_log_that_starts_within_a_batch_gets_the_whole_batch() -> None:
    setup = FollowerSetup()
    setup.follower.restart_at(setup.partition, 7)
    setup.append(leader_batch(5, 5), leader_batch(10, 1))
    assert setup.range == (5, 11)
    setup.partition.update_from_leader(11, 7)
    assert setup.range == (7, 11)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "truncated_at"),
    [
        (4, 20, 12),  # the leader has more of that epoch: all of this log's records of it are right
        (4, 8, 8),  # the leader has fewer of it
        (3, 7, 6),  # an epoch that this log lacks: back to the end of the epoch before
        (2, 4, 4),
        (1, 0, 0),
    ],
)
def test_the_log_is_truncated_where_it_diverges(epoch: int, end_offset: int, truncated_at: int) -> None:
    setup = FollowerSetup()
    setup.append(
        leader_batch(0, 1, 2),
        leader_batch(1, 5, 2),
        *(leader_batch(offset, 1, 4) for offset in range(6, 12)),
        leader_batch(12, 3),
    )
    assert setup.partition.log.epochs.entries == ((2, 0), (4, 6), (5, 12))
    setup.follower.truncate_to_divergence(setup.partition, epoch, end_offset)
    # Only whole batches are removed, so the log may end before the requested offset.
    assert setup.range == (0, {4: 1}.get(truncated_at, truncated_at))
    assert setup.reports == []


def test_a_truncation_below_the_high_watermark_is_reported_and_lowers_it() -> None:
    setup = FollowerSetup()
    setup.append(*(leader_batch(offset, 1) for offset in range(5)))
    setup.partition.update_from_leader(4, 0)
    setup.follower.truncate(setup.partition, 4)
    assert setup.reports == []
    setup.follower.truncate(setup.partition, 2)
    assert "truncated to offset 2, below the high watermark 4" in setup.reports[0]
    assert setup.partition.high_watermark == 2


def test_a_corrupt_batch_before_the_truncation_offset_is_reported_and_nothing_truncated() -> None:
    setup = FollowerSetup()
    setup.append(*(leader_batch(base, 3) for base in range(0, 12, 3)))
    segment = setup.partition.log.segments.active
    segment.file.pwrite(b"\x7f", 8)
    size = segment.size
    assert error_of(setup.follower.truncate, setup.partition, 10) is ErrorCode.CORRUPT_MESSAGE
    assert setup.range == (0, 12)
    assert segment.size == segment.file.size() == size


def test_the_high_watermark_stays_within_the_log_and_never_goes_back() -> None:
    setup = FollowerSetup()
    setup.append(leader_batch(0, 3))
    setup.partition.update_from_leader(10, 0)
    assert setup.partition.high_watermark == 3
    setup.partition.update_from_leader(1, 0)
    assert setup.partition.high_watermark == 3


def test_a_log_restarted_at_an_offset_has_no_producer_state() -> None:
    """An old producer snapshot does not say what producers have written since."""
    setup = FollowerSetup()
    setup.append(leader_batch(0, 1, base_sequence=0, **PRODUCER))
    setup.partition.log.roll(START_MS)
    setup.append(leader_batch(1, 1, base_sequence=1, **PRODUCER))
    assert setup.partition.log.producers.active()
    setup.follower.restart_at(setup.partition, 100)
    assert setup.partition.log.producers.active() == []
    assert not [name for name in setup.files.names("data/a-0") if name.endswith(".snapshot")]


@pytest.mark.parametrize("offset", [0, 3])
def test_a_log_that_lacks_records_is_truncated_before_they_are_fetched_again(offset: int) -> None:
    """Otherwise it would be in sync again at its end, and without the records it could lead."""
    setup = FollowerSetup()
    setup.append(*(leader_batch(each, 1) for each in range(10)))
    setup.partition.update_from_leader(10, 0)
    setup.partition.log.whole_below = offset
    setup.follower.drop_incomplete(setup.partition)
    assert setup.range == (0, offset)
    assert setup.partition.high_watermark == offset
    assert len(setup.reports) == 1
    setup.append(*(leader_batch(each, 1) for each in range(offset, 10)))
    setup.follower.drop_incomplete(setup.partition)
    assert setup.range == (0, 10)
    assert len(setup.reports) == 1


@pytest.mark.parametrize("seed", range(deep(2, quick=8)))
def test_after_a_truncation_no_crash_restores_truncated_records(seed: int) -> None:
    """The recovery point on disk is lowered first: records written after the truncation were never synced."""
    rng = Random(seed)
    setup = FollowerSetup()
    setup.append(*(leader_batch(offset, 1, 4) for offset in range(10)))
    setup.partition.log.flush()
    setup.store.write_checkpoints()
    if seed % 2:
        setup.follower.truncate(setup.partition, 4)
        setup.append(*(leader_batch(offset, 1, 5) for offset in range(4, 7)))
    else:
        setup.follower.restart_at(setup.partition, 6)
        setup.append(leader_batch(6, 1, 5))
    setup.partition.log.roll(START_MS)
    setup.append(leader_batch(7, 1, 5))
    reopened = LogStore(setup.files.crash(rng), "data")
    reopened.load(lambda _: LogConfig(), START_MS)
    log = reopened.get(NAME)
    assert log is not None
    assert log.end_offset <= 8
    for entry in log.epochs.entries:
        is_old = entry.start_offset < (4 if seed % 2 else 6) or entry.start_offset == log.end_offset
        assert (entry.epoch == 4) == is_old
    batches = [
        (header.base_offset, has_valid_crc(data))
        for segment in log.segments
        for header, data in walk_batches(segment.file, 0, segment.size)
    ]
    assert batches == [(offset, True) for offset in range(log.segments.first.base_offset, log.end_offset)]
