"""What a follower does to its log: takes, cuts, begins anew; and what is left if the power fails meanwhile."""

from __future__ import annotations

from random import Random

import pytest
from rooms import HeldFlusher, batch

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.log.walk import walk_batches
from moldau.metadata.image import PartitionState
from moldau.replica.follower_log import FollowerLog, drop_newer_epochs
from moldau.replica.partition import Partition
from moldau.testing.clock import START_MS
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import check_crc

NAME = TopicPartition("a", 0)
STATE = PartitionState(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=5, partition_epoch=0)
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def sent(base_offset: int, count: int, epoch: int = 5, **header: int) -> bytes:
    """A leader's batch, with its offset and epoch in it."""
    made = batch(count, base_offset=base_offset, **header)
    made[12:16] = epoch.to_bytes(4, "big")
    return bytes(made)


class Room:
    def __init__(self, config: LogConfig | None = None) -> None:
        self.files = MemoryFiles()
        self.store = LogStore(self.files, "data")
        log = self.store.create(NAME, bytes(16), config or LogConfig(), START_MS)
        self.flusher = HeldFlusher()
        self.partition = Partition(NAME, bytes(16), log, STATE, 1, 1, 0, self.flusher)
        self.partition.become_follower(STATE)
        self.reports: list[str] = []
        self.follower = FollowerLog(self.store, self.reports.append)

    def take(self, *batches: bytes) -> None:
        self.follower.append_from_leader(self.partition, memoryview(b"".join(batches)), START_MS)

    @property
    def range(self) -> tuple[int, int]:
        return self.partition.log.start_offset, self.partition.log.end_offset


def refusal(deed: object, *arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        deed(*arguments)  # type: ignore[operator]
    return refused.value.code


def test_it_takes_whole_batches_as_they_are() -> None:
    room = Room()
    room.take(sent(0, 3), sent(3, 2), sent(5, 4)[:-1])
    assert room.range == (0, 5)
    room.take()
    assert room.range == (0, 5)
    assert room.partition.log.epochs.entries == ((5, 0),)


@pytest.mark.parametrize("broken", [sent(3, 1)[:-1] + b"!", sent(1, 1), sent(3, 1)[:8] + bytes(60)])
def test_what_does_not_follow_on_or_is_broken_is_refused(broken: bytes) -> None:
    room = Room()
    room.take(sent(0, 3))
    assert refusal(room.take, broken) is ErrorCode.CORRUPT_MESSAGE
    assert room.range == (0, 3)


def test_a_disk_that_refuses_is_a_storage_error() -> None:
    room = Room()
    room.files.bytes_left = 0
    assert refusal(room.take, sent(0, 1)) is ErrorCode.KAFKA_STORAGE_ERROR


def test_what_a_later_leader_wrote_is_left() -> None:
    """It may have cut off what came before it in the same answer (KAFKA-18723)."""
    whole = sent(0, 1) + sent(1, 1, epoch=6) + sent(2, 1, epoch=6)
    assert bytes(drop_newer_epochs(memoryview(whole), 5)) == sent(0, 1)
    assert bytes(drop_newer_epochs(memoryview(whole), 6)) == whole
    room = Room()
    room.take(whole)
    assert room.range == (0, 1)


def test_a_log_that_begins_in_the_middle_of_a_batch_gets_it_whole() -> None:
    room = Room()
    room.follower.restart_at(room.partition, 7)
    room.take(sent(5, 5), sent(10, 1))
    assert room.range == (5, 11)
    room.partition.update_from_leader(11, 7)
    assert room.range == (7, 11)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut_at"),
    [
        (4, 20, 12),  # the leader had more of that epoch: all of this log's own is good
        (4, 8, 8),  # the leader had less of it
        (3, 7, 6),  # an epoch that is not known here: back to where the one before it ended
        (2, 4, 4),
        (1, 0, 0),
    ],
)
def test_it_cuts_where_the_logs_part(epoch: int, end_offset: int, cut_at: int) -> None:
    room = Room()
    room.take(sent(0, 1, 2), sent(1, 5, 2), *(sent(offset, 1, 4) for offset in range(6, 12)), sent(12, 3))
    assert room.partition.log.epochs.entries == ((2, 0), (4, 6), (5, 12))
    room.follower.truncate_to_divergence(room.partition, epoch, end_offset)
    # A batch is cut whole, so that the log may end before what was asked for.
    assert room.range == (0, {4: 1}.get(cut_at, cut_at))
    assert room.reports == []


def test_a_cut_below_the_high_watermark_is_told_and_takes_it_along() -> None:
    room = Room()
    room.take(*(sent(offset, 1) for offset in range(5)))
    room.partition.update_from_leader(4, 0)
    room.follower.truncate(room.partition, 4)
    assert room.reports == []
    room.follower.truncate(room.partition, 2)
    assert "truncated to offset 2, below the high watermark 4" in room.reports[0]
    assert room.partition.high_watermark == 2


def test_the_high_watermark_is_never_beyond_the_log_and_never_goes_back() -> None:
    room = Room()
    room.take(sent(0, 3))
    room.partition.update_from_leader(10, 0)
    assert room.partition.high_watermark == 3
    room.partition.update_from_leader(1, 0)
    assert room.partition.high_watermark == 3


def test_a_log_begun_anew_knows_nothing_of_producers() -> None:
    """What they had done by the time of an old snapshot is not what they have done since."""
    room = Room()
    room.take(sent(0, 1, base_sequence=0, **PRODUCER))
    room.partition.log.roll(START_MS)
    room.take(sent(1, 1, base_sequence=1, **PRODUCER))
    assert room.partition.log.producers.active()
    room.follower.restart_at(room.partition, 100)
    assert room.partition.log.producers.active() == []
    assert not [name for name in room.files.names("data/a-0") if name.endswith(".snapshot")]


@pytest.mark.parametrize("seed", range(20))
def test_after_a_cut_no_crash_brings_back_what_was_cut(seed: int) -> None:
    """The recovery point on disk goes down first: what is written behind the cut was never synced."""
    rng = Random(seed)
    room = Room()
    room.take(*(sent(offset, 1, 4) for offset in range(10)))
    room.partition.log.flush()
    room.store.write_checkpoints()
    if seed % 2:
        room.follower.truncate(room.partition, 4)
        room.take(*(sent(offset, 1, 5) for offset in range(4, 7)))
    else:
        room.follower.restart_at(room.partition, 6)
        room.take(sent(6, 1, 5))
    room.partition.log.roll(START_MS)
    room.take(sent(7, 1, 5))
    again = LogStore(room.files.crash(rng), "data")
    again.load(lambda _: LogConfig(), START_MS)
    log = again.get(NAME)
    assert log is not None
    assert log.end_offset <= 8
    for entry in log.epochs.entries:
        is_old = entry.start_offset < (4 if seed % 2 else 6) or entry.start_offset == log.end_offset
        assert (entry.epoch == 4) == is_old
    found = [
        (header.base_offset, check_crc(made))
        for segment in log.segments
        for header, made in walk_batches(segment.file, 0, segment.size)
    ]
    assert found == [(offset, True) for offset in range(log.segments.first.base_offset, log.end_offset)]
