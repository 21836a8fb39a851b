"""Housekeeping: retention, flushing by time, checkpoints, expiration of idle producers."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping

import pytest
from harness.fetch_requests import Key, fetch, immediate, parked, partition_results
from harness.in_memory_node import InMemoryNode, batch
from harness.raised_faults import own_work

from moldau.base.errors import ErrorCode, StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.base.turns import DELETED_A_TURN, DISK_TURN_MS, SLOW_ITEMS_A_TURN
from moldau.log import checkpoints, layout
from moldau.log.checkpoints import decode_offsets, encode_offsets
from moldau.log.epochs import LeaderEpochs
from moldau.replica.partition import Partition
from moldau.runtime.housekeeping import Housekeeping
from moldau.testing.clock import FakeTimers
from moldau.testing.ports import at_once

DAY_MS = 24 * 3600 * 1000
A: Key = ("a", 0)


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode().start()


def housekeeping_of(node: InMemoryNode, timers: FakeTimers | None = None) -> Housekeeping:
    return Housekeeping(
        node.partitions, node.store, node.flusher, node.clock, own_work(timers or node.timers), lambda: DAY_MS
    )


def retain(housekeeping: Housekeeping) -> None:
    faults: list[StorageFault] = []
    housekeeping.retain(at_once, faults.append)
    assert not faults


def test_retention_checks_some_partitions_a_turn_and_skips_deleted_ones(node: InMemoryNode) -> None:
    node.create_topic("a", 2 * SLOW_ITEMS_A_TURN, retention_ms="1000")
    partitions = [node.partitions.get("a", index) for index in range(2 * SLOW_ITEMS_A_TURN)]
    for partition in partitions:
        node.append("a", partition.name.partition)
        partition.log.roll(node.clock.now_ms())
    node.clock.move(2000)
    timers = FakeTimers()
    housekeeping = housekeeping_of(node, timers)
    housekeeping.retain(at_once, pytest.fail)
    housekeeping.retain(at_once, pytest.fail)
    started = [partition.log.start_offset for partition in partitions]
    assert sorted(started) == [0] * (2 * SLOW_ITEMS_A_TURN - DELETED_A_TURN) + [1] * DELETED_A_TURN
    deleted = partitions[started.index(0)]
    deleted.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert timers.run_soon() == 2 * SLOW_ITEMS_A_TURN / DELETED_A_TURN - 1
    assert [partition for partition in partitions if partition.log.start_offset == 0] == [deleted]


def test_leader_epochs_are_written_when_segments_are_deleted(node: InMemoryNode) -> None:
    """At the next start, epochs of segments that are gone would look like a loss."""
    node.create_topic("a", retention_ms="1000", file_delete_delay_ms="0")
    write_segments(node, "a", 3)
    node.settle()
    node.clock.move(2000)
    retain(housekeeping_of(node))
    node.settle()
    node.clock.move(1)
    retain(housekeeping_of(node))
    assert not [name for name in node.files.names("data/a-0") if name.endswith(layout.DELETED)]
    epochs = node.files.read(f"data/a-0/{layout.LEADER_EPOCH_CHECKPOINT}")
    assert epochs is not None
    assert LeaderEpochs.decode(epochs).entries == ((0, node.partition("a").log.start_offset),)


def test_the_segments_of_one_partition_are_deleted_in_turns(node: InMemoryNode) -> None:
    node.create_topic("a", retention_ms="1000")
    write_segments(node, "a", 3 * DELETED_A_TURN + 1)
    log = node.partition("a").log
    node.clock.move(2000)
    timers = FakeTimers()
    housekeeping_of(node, timers).retain(at_once, pytest.fail)
    left = [len(log.segments)]
    while timers.run_one_soon():
        left.append(len(log.segments))
    assert left == [2 * DELETED_A_TURN + 2, DELETED_A_TURN + 2, 2, 1]


def test_a_turn_of_retention_ends_early_on_a_slow_disk(node: InMemoryNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.create_topic("a", 6)
    checked: list[Partition] = []

    def slow(partition: Partition, now_ms: int, at_most: int) -> int:
        checked.append(partition)
        node.clock.move(DISK_TURN_MS // 2)
        return 0

    monkeypatch.setattr(Partition, "delete_expired", slow)
    timers = FakeTimers()
    housekeeping_of(node, timers).retain(at_once, pytest.fail)
    assert len(checked) == 3
    assert timers.run_one_soon()
    assert len(checked) == 6


def test_a_turn_of_retention_ends_within_a_partition_if_each_segment_takes_long(
    node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.create_topic("a", retention_ms="1000")
    write_segments(node, "a", 6)
    log = node.partition("a").log
    node.clock.move(2000)
    delete = Partition.delete_expired

    def slow(partition: Partition, now_ms: int, at_most: int) -> int:
        node.clock.move(DISK_TURN_MS // 2 + 1)
        return delete(partition, now_ms, at_most)

    monkeypatch.setattr(Partition, "delete_expired", slow)
    timers = FakeTimers()
    housekeeping_of(node, timers).retain(at_once, pytest.fail)
    left = [len(log.segments)]
    while timers.run_one_soon():
        left.append(len(log.segments))
    assert left[:4] == [5, 3, 1, 1]


def test_a_stop_ends_a_pass_of_retention(node: InMemoryNode) -> None:
    node.create_topic("a", 2 * SLOW_ITEMS_A_TURN, retention_ms="1000")
    timers = FakeTimers()
    housekeeping = housekeeping_of(node, timers)
    housekeeping.retain(at_once, pytest.fail)
    housekeeping.stop()
    node.store.collect_deletable = pytest.fail  # type: ignore[method-assign]
    assert timers.run_soon() == 1


def write_segments(node: InMemoryNode, name: str, count: int) -> None:
    """Write segments with one record each, and an empty active one."""
    for _ in range(count):
        node.append(name)
        node.partition(name).log.roll(node.clock.now_ms())


def test_old_segments_are_deleted_and_fetch_sessions_get_the_new_start(node: InMemoryNode) -> None:
    node.create_topic("a", retention_ms="1000")
    write_segments(node, "a", 3)
    session = immediate(fetch(node, {A: 3}, epoch=0)).session_id
    housekeeping = housekeeping_of(node)
    retain(housekeeping)
    assert node.partition("a").log.start_offset == 0
    node.clock.move(2000)
    retain(housekeeping)
    assert node.partition("a").log.start_offset == 3
    news = partition_results(immediate(fetch(node, session=session, epoch=1)))
    assert (news[A].log_start, news[A].high_watermark) == (3, 3)


def test_a_fetch_that_waits_below_the_new_start_is_answered(node: InMemoryNode) -> None:
    node.create_topic("a", retention_ms="1000")
    write_segments(node, "a", 3)
    answer = parked(fetch(node, {A: 1}, wait_ms=60_000, min_bytes=1_000_000))
    node.clock.move(2000)
    retain(housekeeping_of(node))
    node.timers.run_soon()
    assert partition_results(answer)[A].error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_files_of_deleted_topics_are_removed_after_their_delay(node: InMemoryNode) -> None:
    node.create_topic("a", file_delete_delay_ms="5000")
    node.delete_topic("a")
    housekeeping = housekeeping_of(node)
    retain(housekeeping)
    marked = [name for name in node.files.names("data") if name.startswith("a-")]
    assert len(marked) == 1
    assert marked[0].endswith("-delete")
    node.clock.move(5000)
    retain(housekeeping)
    assert not [name for name in node.files.names("data") if name.startswith("a-")]


def test_a_full_disk_keeps_the_old_checkpoints(node: InMemoryNode) -> None:
    node.create_topic("a")
    before = node.files.read(f"data/{layout.RECOVERY_POINTS}")
    node.append("a")
    node.partition("a").log.flush()
    node.files.bytes_left = 0
    faults: list[StorageFault] = []
    housekeeping = housekeeping_of(node)
    housekeeping.write_checkpoints(at_once, faults.append)
    assert (faults, node.partition("a").log.fault) == ([], None)
    assert node.files.read(f"data/{layout.RECOVERY_POINTS}") == before
    node.files.bytes_left = None
    housekeeping.write_checkpoints(at_once, faults.append)
    content = node.files.read(f"data/{layout.RECOVERY_POINTS}")
    assert not faults
    assert content is not None
    assert decode_offsets(content)[TopicPartition("a", 0)] == 1


def test_too_many_open_files_delay_retention_and_do_not_stop_the_node(
    node: InMemoryNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        node.create_topic(name, retention_ms="1000")
        write_segments(node, name, 2)
        node.partition(name).log.flush()
    node.store.write_checkpoints()
    node = node.restart()  # the timestamps are now only in the indexes
    node.clock.move(DAY_MS)
    housekeeping, faults = housekeeping_of(node), list[StorageFault]()
    read = node.files.read

    def refuse(path: str) -> bytes | None:
        if path.endswith(layout.TIME_INDEX) and not path.startswith("data/b-0"):
            raise StorageFault(path, OSError(errno.EMFILE, "too many open files"))
        return read(path)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "moldau.housekeeping"):
        patch.setattr(node.files, "read", refuse)
        housekeeping.retain(at_once, faults.append)
        node.timers.run_soon()
    assert [node.partition(name).log.start_offset for name in ("a", "b", "c")] == [0, 2, 0]
    assert [each.getMessage() for each in caplog.records if "expired segments" in each.getMessage()] == [
        "a-0: expired segments are not deleted, retried later: data/a-0/00000000000000000000.timeindex: "
        "too many open files; raise the limit of open files (`ulimit -n`)"
    ]
    housekeeping.retain(at_once, faults.append)
    node.timers.run_soon()
    assert [node.partition(name).log.start_offset for name in ("a", "b", "c")] == [2, 2, 2]
    assert not faults


def test_a_disk_that_fails_in_retention_is_reported(node: InMemoryNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.create_topic("a", retention_ms="1000")
    write_segments(node, "a", 2)
    node.clock.move(DAY_MS)
    broker = node.assembly.broker_side
    assert broker is not None

    def fail(source: str, target: str) -> None:
        raise StorageFault(source, OSError(errno.EIO, "planned fault"))

    monkeypatch.setattr(node.files, "rename", fail)
    broker.housekeeping.retain(at_once, pytest.fail)
    assert [str(fault) for fault in node.faults] == ["data/a-0/00000000000000000000.log: planned fault"]


def test_files_not_removed_during_a_shortage_are_removed_later(
    node: InMemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.create_topic("a", file_delete_delay_ms="0")
    node.delete_topic("a")
    housekeeping, faults = housekeeping_of(node), list[StorageFault]()

    def refuse(directory: str) -> list[str]:
        raise StorageFault(directory, OSError(errno.EMFILE, "too many open files"))

    with monkeypatch.context() as patch:
        patch.setattr(node.files, "names", refuse)
        housekeeping.purge(run_at_once, faults.append)
    assert [name for name in node.files.names("data") if name.startswith("a-")]
    housekeeping.purge(run_at_once, faults.append)
    assert not [name for name in node.files.names("data") if name.startswith("a-")]
    assert not faults


def run_at_once(work: Callable[[], None]) -> Promise[StorageFault | None]:
    done: Promise[StorageFault | None] = Promise()
    try:
        work()
    except StorageFault as fault:
        done.complete(fault)
    else:
        done.complete(None)
    return done


def test_a_log_is_flushed_after_flush_ms(node: InMemoryNode) -> None:
    node.create_topic("a", flush_ms="1000")
    node.create_topic("never")
    housekeeping = housekeeping_of(node)
    for name in ("a", "never"):
        node.append(name)
        node.partition(name).log.flush()
        node.append(name)
    housekeeping.flush_by_time()
    node.clock.move(999)
    housekeeping.flush_by_time()
    assert not node.flusher.requested
    node.clock.move(1)
    housekeeping.flush_by_time()
    assert list(node.flusher.requested) == [node.partition("a")]


def test_idle_producers_expire_and_others_do_not(node: InMemoryNode) -> None:
    node.create_topic("a")
    partition = node.partition("a")
    for producer_id in (1, 2):
        node.clock.move(DAY_MS // 2)
        data = batch(timestamp=node.clock.now_ms(), producer_id=producer_id, producer_epoch=0, base_sequence=0)
        partition.append(data, -1, node.clock.now_ms())
    node.clock.move(DAY_MS // 2 + 1)
    housekeeping_of(node).expire_producers()
    assert [entry.producer_id for entry in partition.log.producers.active()] == [2]


def test_checkpoints_are_encoded_in_the_thread(node: InMemoryNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.create_topic("a", 3)
    encoded: list[int] = []

    def encode(offsets: Mapping[TopicPartition, int]) -> bytes:
        encoded.append(len(offsets))
        return encode_offsets(offsets)

    monkeypatch.setattr(checkpoints, "encode_offsets", encode)
    in_thread: list[Callable[[], None]] = []
    housekeeping_of(node).write_checkpoints(lambda work: in_thread.append(work) or Promise(), pytest.fail)
    assert (encoded, len(in_thread)) == ([], 1)
    in_thread[0]()
    assert 3 in encoded


def test_checkpoints_preserve_the_high_watermark_over_a_crash(node: InMemoryNode) -> None:
    node.create_topic("a", 2)
    node.append("a", 1, count=7)
    node.partition("a", 1).delete_records(3)
    node.flush()
    housekeeping = housekeeping_of(node)
    assert {str(each): offset for each, offset in housekeeping.high_watermarks().items()} == {"a-0": 0, "a-1": 7}
    node.store.write_checkpoints(housekeeping.high_watermarks())
    again = node.crash()
    assert again.store.high_watermarks[TopicPartition("a", 1)] == 7
    assert again.partition("a", 1).log.start_offset == 3
    assert again.partition("a", 1).log.end_offset >= 3, "a log start offset is never written beyond what is durable"
