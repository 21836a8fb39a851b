"""One partition on its leader: acknowledgements, fencing, the high watermark, deleting records, closing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.in_memory_node import HeldFlusher, batch, error_of

from moldau.base.errors import ErrorCode
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
LEADER_STATE = PartitionState(replicas=(NODE_ID,), isr=(NODE_ID,), leader=NODE_ID, leader_epoch=3, partition_epoch=0)
FLUSH_EACH_MESSAGE = LogConfig(flush_messages=1)


class WaitingFetch:
    """A waiting fetch that records how it is woken."""

    def __init__(self) -> None:
        self.readable_sizes: list[int] = []

    def high_watermark_moved(self, partition: Partition, size: int) -> None:
        self.readable(partition, size)

    def readable(self, partition: Partition, size: int) -> None:
        self.readable_sizes.append(size)

    def metadata_changed(self, partition: Partition) -> None:
        raise AssertionError("called only for followers' fetches")


class PartitionSetup:
    """A partition with files in memory, a flusher that the test drives, and a waiting fetch."""

    def __init__(
        self, config: LogConfig | None = None, state: PartitionState = LEADER_STATE, min_insync: int = 1
    ) -> None:
        self.files = MemoryFiles()
        self.flusher = HeldFlusher()
        log = LogStore(self.files, "data").create(NAME, bytes(16), config or LogConfig(), START_MS)
        self.partition = Partition(NAME, bytes(16), log, state, NODE_ID, min_insync, 0, self.flusher)
        if state.leader == NODE_ID:
            self.partition.lead(state)
        else:
            self.partition.become_follower(state)
        self.waiting_fetch = WaitingFetch()
        self.partition.watchers.consumers[self.waiting_fetch] = None

    def append(self, count: int = 1, acks: int = -1, **header: int) -> tuple[int, int]:
        appended = self.partition.append(batch(count, **header), acks, START_MS)
        return appended.first_offset, appended.last_offset


def test_without_flush_messages_records_are_readable_at_once() -> None:
    setup = PartitionSetup()
    assert setup.append(3) == (0, 2)
    assert setup.partition.high_watermark == setup.partition.last_stable_offset == 3
    assert setup.partition.acknowledged(2) is None
    assert setup.waiting_fetch.readable_sizes == [len(batch(3))]
    assert not setup.flusher.requested


def test_flush_messages_1_holds_the_high_watermark_until_the_flush() -> None:
    setup = PartitionSetup(FLUSH_EACH_MESSAGE)
    setup.append(3)
    promise = setup.partition.acknowledged(2)
    assert promise is not None
    assert not promise.done
    assert (setup.partition.high_watermark, setup.waiting_fetch.readable_sizes) == (0, [])
    setup.flusher.flush()
    assert (setup.partition.high_watermark, setup.waiting_fetch.readable_sizes) == (3, [0])
    assert promise.value() == ErrorCode.NONE
    assert setup.partition.acknowledged(2) is None


def test_a_flush_acknowledges_only_what_it_covers() -> None:
    setup = PartitionSetup(FLUSH_EACH_MESSAGE)
    setup.append()
    first = setup.partition.acknowledged(0)
    work = setup.partition.log.begin_flush()
    assert work is not None
    setup.append()
    second = setup.partition.acknowledged(1)
    work.sync()
    setup.partition.log.finish_flush(work)
    setup.partition.flushed()
    assert first is not None
    assert first.done
    assert second is not None
    assert not second.done, "it was appended after that flush began"
    assert setup.partition.high_watermark == 1
    setup.flusher.flush()
    assert second.done


def test_a_duplicate_that_is_not_on_disk_yet_waits_like_the_first() -> None:
    setup = PartitionSetup(FLUSH_EACH_MESSAGE)
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    assert setup.append(**producer) == (0, 0)
    assert setup.append(**producer) == (0, 0)
    promise = setup.partition.acknowledged(0)
    assert promise is not None
    setup.flusher.flush()
    assert promise.done
    assert setup.append(**producer) == (0, 0)
    assert setup.partition.acknowledged(0) is None
    assert setup.partition.log.end_offset == 1


def test_flush_messages_above_1_requests_a_flush_but_does_not_wait_for_it() -> None:
    setup = PartitionSetup(LogConfig(flush_messages=3))
    setup.append(2)
    assert not setup.flusher.requested
    setup.append(1)
    assert list(setup.flusher.requested) == [setup.partition]
    assert setup.partition.high_watermark == 3


def test_a_follower_refuses_appends() -> None:
    setup = PartitionSetup(state=replace(LEADER_STATE, leader=OTHER))
    assert error_of(setup.append) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(setup.partition.check_leader_epoch, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert setup.partition.log.end_offset == 0


@pytest.mark.parametrize(("epoch", "code"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_other_leader_epochs_are_refused(epoch: int, code: ErrorCode) -> None:
    setup = PartitionSetup()
    assert error_of(setup.partition.check_leader_epoch, epoch) == code
    setup.partition.check_leader_epoch(3)
    setup.partition.check_leader_epoch(-1)


def test_too_few_in_sync_replicas_refuse_acks_all_only() -> None:
    setup = PartitionSetup(state=replace(LEADER_STATE, replicas=(NODE_ID, OTHER)), min_insync=2)
    assert error_of(setup.append) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert setup.partition.log.end_offset == 0
    assert setup.append(acks=1) == (0, 0)
    assert setup.append(acks=0) == (1, 1)


def test_min_insync_replicas_is_capped_at_the_replica_count() -> None:
    assert PartitionSetup(min_insync=2).append() == (0, 0)


def test_a_new_leader_epoch_is_recorded_at_its_start_offset() -> None:
    setup = PartitionSetup()
    setup.append(5)
    setup.partition.lead(replace(LEADER_STATE, leader_epoch=4))
    setup.partition.lead(replace(LEADER_STATE, leader_epoch=4))
    setup.append(2)
    epochs = setup.partition.log.epochs
    assert epochs.end_offset_for(3, setup.partition.log.end_offset) == (3, 5)
    assert epochs.end_offset_for(4, setup.partition.log.end_offset) == (4, 7)


@pytest.mark.parametrize(("requested_offset", "start"), [(0, 0), (4, 4), (-1, 5), (5, 5)])
def test_delete_records_moves_the_log_start_offset(requested_offset: int, start: int) -> None:
    setup = PartitionSetup()
    setup.append(5)
    setup.waiting_fetch.readable_sizes.clear()
    assert setup.partition.delete_records(requested_offset) == start
    assert setup.waiting_fetch.readable_sizes == [0], "fetches below the new start are woken"
    assert setup.partition.delete_records(0) == start, "it never moves back"


@pytest.mark.parametrize("requested_offset", [-2, 6, 2**62])
def test_delete_records_out_of_range(requested_offset: int) -> None:
    setup = PartitionSetup()
    setup.append(5)
    assert error_of(setup.partition.delete_records, requested_offset) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_stops_at_the_high_watermark() -> None:
    setup = PartitionSetup(FLUSH_EACH_MESSAGE)
    setup.append(5)
    assert error_of(setup.partition.delete_records, 1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert setup.partition.delete_records(-1) == 0


def test_delete_records_is_refused_for_a_compacted_topic() -> None:
    setup = PartitionSetup(LogConfig(cleanup_policy=frozenset({"compact"})))
    assert error_of(setup.partition.delete_records, 0) == ErrorCode.POLICY_VIOLATION


def test_closing_completes_all_waiting_acknowledgements_with_the_error() -> None:
    setup = PartitionSetup(FLUSH_EACH_MESSAGE)
    promises: list[Promise[ErrorCode] | None] = []
    for offset in range(3):
        setup.append()
        promises.append(setup.partition.acknowledged(offset))
    setup.partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [promise and promise.value() for promise in promises] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert setup.waiting_fetch.readable_sizes == [0]
    assert error_of(setup.append) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(setup.partition.check_leader_epoch, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    setup.partition.log.flush()
    setup.partition.flushed()
    assert setup.waiting_fetch.readable_sizes == [0], "a closed partition has no watchers"


def test_a_failed_write_is_a_storage_error() -> None:
    setup = PartitionSetup()
    setup.append()
    setup.files.bytes_left = 0
    assert error_of(setup.append) == ErrorCode.KAFKA_STORAGE_ERROR
    assert setup.partition.high_watermark == setup.partition.log.end_offset == 1
    setup.files.bytes_left = None
    assert setup.append() == (1, 1)


def test_watchers_may_remove_themselves_while_they_are_notified() -> None:
    setup = PartitionSetup()

    class Leaver(WaitingFetch):
        def readable(self, partition: Partition, size: int) -> None:
            super().readable(partition, size)
            partition.watchers.remove(self)

    leavers = [Leaver() for _ in range(5)]
    for leaver in leavers:
        setup.partition.watchers.consumers[leaver] = None
    setup.append()
    setup.append()
    assert [len(leaver.readable_sizes) for leaver in leavers] == [1] * 5
    assert len(setup.waiting_fetch.readable_sizes) == 2
