"""One partition as its leader: acknowledgements, fencing, the high watermark, deleting records, the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rooms import HeldFlusher, batch

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.metadata.image import PartitionState
from moldau.replica.partition import Partition
from moldau.testing.clock import START_MS
from moldau.testing.files import MemoryFiles

NAME = TopicPartition("a", 0)
NODE_ID, OTHER = 1, 2
LED = PartitionState(replicas=(NODE_ID,), isr=(NODE_ID,), leader=NODE_ID, leader_epoch=3, partition_epoch=0)
SAFE = LogConfig(flush_messages=1)


class Spy:
    """A fetch that waits."""

    def __init__(self) -> None:
        self.touches: list[int] = []

    def high_watermark_moved(self, partition: Partition, size: int) -> None:
        self.readable(partition, size)

    def readable(self, partition: Partition, size: int) -> None:
        self.touches.append(size)

    def metadata_changed(self, partition: Partition) -> None:
        raise AssertionError("for followers only")


class Room:
    """A partition and what stands around it."""

    def __init__(self, config: LogConfig | None = None, state: PartitionState = LED, min_insync: int = 1) -> None:
        self.files = MemoryFiles()
        self.flusher = HeldFlusher()
        log = LogStore(self.files, "data").create(NAME, bytes(16), config or LogConfig(), START_MS)
        self.partition = Partition(NAME, bytes(16), log, state, NODE_ID, min_insync, 0, self.flusher)
        if state.leader == NODE_ID:
            self.partition.lead(state)
        else:
            self.partition.become_follower(state)
        self.spy = Spy()
        self.partition.watchers.consumers[self.spy] = None

    def append(self, count: int = 1, acks: int = -1, **header: int) -> tuple[int, int]:
        done = self.partition.append(batch(count, **header), acks, START_MS)
        return done.first_offset, done.last_offset


def refusal(deed: object, *arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        deed(*arguments)  # type: ignore[operator]
    return refused.value.code


def test_what_is_appended_is_readable_at_once_where_nobody_asks_for_the_disk() -> None:
    room = Room()
    assert room.append(3) == (0, 2)
    assert room.partition.high_watermark == room.partition.last_stable_offset == 3
    assert room.partition.acknowledged(2) is None
    assert room.spy.touches == [len(batch(3))]
    assert not room.flusher.asked


def test_flush_messages_1_holds_the_high_watermark_until_it_is_on_disk() -> None:
    room = Room(SAFE)
    room.append(3)
    promise = room.partition.acknowledged(2)
    assert promise is not None
    assert not promise.done
    assert (room.partition.high_watermark, room.spy.touches) == (0, [])
    room.flusher.flush()
    assert (room.partition.high_watermark, room.spy.touches) == (3, [0])
    assert promise.value() == ErrorCode.NONE
    assert room.partition.acknowledged(2) is None


def test_a_flush_tells_those_it_covers_and_no_other() -> None:
    room = Room(SAFE)
    room.append()
    first = room.partition.acknowledged(0)
    work = room.partition.log.begin_flush()
    assert work is not None
    room.append()
    second = room.partition.acknowledged(1)
    work.sync()
    room.partition.log.finish_flush(work)
    room.partition.flushed()
    assert first is not None
    assert first.done
    assert second is not None
    assert not second.done, "it came after that flush began"
    assert room.partition.high_watermark == 1
    room.flusher.flush()
    assert second.done


def test_a_repeat_that_is_not_on_disk_yet_waits_like_the_first() -> None:
    room = Room(SAFE)
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    assert room.append(**producer) == (0, 0)
    assert room.append(**producer) == (0, 0)
    promise = room.partition.acknowledged(0)
    assert promise is not None
    room.flusher.flush()
    assert promise.done
    assert room.append(**producer) == (0, 0)
    assert room.partition.acknowledged(0) is None
    assert room.partition.log.end_offset == 1


def test_flushing_by_count_asks_for_the_disk_but_does_not_wait_for_it() -> None:
    room = Room(LogConfig(flush_messages=3))
    room.append(2)
    assert not room.flusher.asked
    room.append(1)
    assert list(room.flusher.asked) == [room.partition]
    assert room.partition.high_watermark == 3


def test_who_does_not_lead_takes_nothing() -> None:
    room = Room(state=replace(LED, leader=OTHER))
    assert refusal(room.append) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(room.partition.check_leader_epoch, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert room.partition.log.end_offset == 0


@pytest.mark.parametrize(("epoch", "code"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_fencing(epoch: int, code: ErrorCode) -> None:
    room = Room()
    assert refusal(room.partition.check_leader_epoch, epoch) == code
    room.partition.check_leader_epoch(3)
    room.partition.check_leader_epoch(-1)


def test_too_few_in_sync_is_for_acks_all_only_and_leaves_the_log_alone() -> None:
    room = Room(state=replace(LED, replicas=(NODE_ID, OTHER)), min_insync=2)
    assert refusal(room.append) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert room.partition.log.end_offset == 0
    assert room.append(acks=1) == (0, 0)
    assert room.append(acks=0) == (1, 1)


def test_more_replicas_than_there_are_cannot_be_asked_for() -> None:
    assert Room(min_insync=2).append() == (0, 0)


def test_a_new_leader_epoch_is_noted_where_it_begins() -> None:
    room = Room()
    room.append(5)
    room.partition.lead(replace(LED, leader_epoch=4))
    room.partition.lead(replace(LED, leader_epoch=4))
    room.append(2)
    epochs = room.partition.log.epochs
    assert epochs.end_offset_for(3, room.partition.log.end_offset) == (3, 5)
    assert epochs.end_offset_for(4, room.partition.log.end_offset) == (4, 7)


@pytest.mark.parametrize(("asked", "start"), [(0, 0), (4, 4), (-1, 5), (5, 5)])
def test_delete_records_moves_the_start(asked: int, start: int) -> None:
    room = Room()
    room.append(5)
    room.spy.touches.clear()
    assert room.partition.delete_records(asked) == start
    assert room.spy.touches == [0], "who waits below it has a right to know"
    assert room.partition.delete_records(0) == start, "it never moves back"


@pytest.mark.parametrize("asked", [-2, 6, 2**62])
def test_delete_records_out_of_range(asked: int) -> None:
    room = Room()
    room.append(5)
    assert refusal(room.partition.delete_records, asked) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_stops_at_the_high_watermark() -> None:
    room = Room(SAFE)
    room.append(5)
    assert refusal(room.partition.delete_records, 1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert room.partition.delete_records(-1) == 0


def test_a_compacted_topic_keeps_its_records() -> None:
    room = Room(LogConfig(cleanup_policy=frozenset({"compact"})))
    assert refusal(room.partition.delete_records, 0) == ErrorCode.POLICY_VIOLATION


def test_at_the_end_everyone_is_told_why() -> None:
    room = Room(SAFE)
    promises: list[Promise[ErrorCode] | None] = []
    for offset in range(3):
        room.append()
        promises.append(room.partition.acknowledged(offset))
    room.partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [promise and promise.value() for promise in promises] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert room.spy.touches == [0]
    assert refusal(room.append) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(room.partition.check_leader_epoch, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    room.partition.log.flush()
    room.partition.flushed()
    assert room.spy.touches == [0], "nobody watches any more"


def test_a_disk_that_refuses_is_a_storage_error_to_the_client() -> None:
    room = Room()
    room.append()
    room.files.bytes_left = 0
    assert refusal(room.append) == ErrorCode.KAFKA_STORAGE_ERROR
    assert room.partition.high_watermark == room.partition.log.end_offset == 1
    room.files.bytes_left = None
    assert room.append() == (1, 1)


def test_watchers_may_come_and_go_while_they_are_told() -> None:
    room = Room()

    class Leaver(Spy):
        def readable(self, partition: Partition, size: int) -> None:
            super().readable(partition, size)
            partition.watchers.remove(self)

    leavers = [Leaver() for _ in range(5)]
    for leaver in leavers:
        room.partition.watchers.consumers[leaver] = None
    room.append()
    room.append()
    assert [len(leaver.touches) for leaver in leavers] == [1] * 5
    assert len(room.spy.touches) == 2
