"""Flushing logs in a thread: many requests share one flush, and logs may change during it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode

from moldau.assembly.assembly import METADATA
from moldau.base.errors import ErrorCode, StorageFault
from moldau.log.flush import FlushWork
from moldau.replica.partition import Partition
from moldau.runtime.flusher import LogFlusher
from moldau.runtime.quorum.driver import SHORTAGE_RETRY_MS


class PendingWork:
    """Runs the work of a thread when the test asks for it."""

    def __init__(self, call: Callable[..., None], *arguments: Any) -> None:
        self._run = partial(call, *arguments)
        self._done: Callable[[Any], None] = lambda _: None

    def add_done_callback(self, done: Callable[[Any], None]) -> None:
        self._done = done

    def result(self) -> None:
        self._run()

    def run(self) -> None:
        """Call the flusher's callback. It asks for `result`, which does the work."""
        self._done(self)


class ManualExecutorLoop:
    """A loop of which only `run_in_executor` is used."""

    def __init__(self) -> None:
        self.pending: list[PendingWork] = []

    def run_in_executor(self, _: None, call: Callable[..., None], *arguments: Any) -> PendingWork:
        self.pending.append(PendingWork(call, *arguments))
        return self.pending[-1]


class FlusherHarness:
    def __init__(self) -> None:
        self.node = InMemoryNode().start()
        for name in ("a", "b", "c"):
            self.node.create_topic(name, flush_messages="1")
        self.loop = ManualExecutorLoop()
        self.faults: list[Exception] = []
        self.flusher = LogFlusher(self.loop, self.faults.append, threads=1)  # type: ignore[arg-type]
        for partition in self.node.partitions:
            partition._flusher = self.flusher

    def append(self, name: str) -> Partition:
        self.node.append(name)
        return self.node.partition(name)

    def on_disk(self) -> dict[str, int]:
        """Return the high watermarks: with one replica and `flush.messages=1` they follow the flushes."""
        return {str(each.name): each.high_watermark for each in self.node.partitions}


@pytest.fixture
def harness() -> FlusherHarness:
    return FlusherHarness()


def test_requests_during_a_flush_are_served_by_the_next(harness: FlusherHarness) -> None:
    harness.append("a")
    harness.append("b")
    harness.append("b")
    harness.append("a")
    assert len(harness.loop.pending) == 1
    harness.loop.pending[0].run()
    assert harness.on_disk()["a-0"] >= 1
    assert len(harness.loop.pending) == 2
    harness.loop.pending[1].run()
    assert harness.on_disk() == {"a-0": 2, "b-0": 2, "c-0": 0}
    assert len(harness.loop.pending) == 2, "no third flush was requested"


def test_logs_are_synced_side_by_side_each_by_one_thread(harness: FlusherHarness) -> None:
    harness.flusher._threads = 2
    harness.append("a")
    harness.append("b")
    harness.append("c")
    harness.append("a")
    harness.loop.pending[0].run()
    first, second = harness.loop.pending[1:]
    first.run()
    assert sorted(harness.on_disk().values()) == [0, 0, 1], "the second flush is reported when all its threads are done"
    second.run()
    assert harness.on_disk() == {"a-0": 2, "b-0": 1, "c-0": 1}
    assert len(harness.loop.pending) == 3


def test_requests_from_callbacks_wait_for_one_next_flush(harness: FlusherHarness) -> None:
    """The quorum requests its next flush while the last one is reported. Two flushes must not overlap."""
    harness.append("c")
    for name in ("a", "b"):
        durable = harness.append(name).acknowledged(0)
        assert durable is not None
        durable.then(lambda _, name=name: harness.append(name))
    harness.loop.pending[0].run()
    harness.loop.pending[1].run()
    assert len(harness.loop.pending) == 3
    assert not harness.flusher._idle.is_set()
    harness.loop.pending[2].run()
    assert harness.on_disk() == {"a-0": 2, "b-0": 2, "c-0": 1}
    assert harness.flusher._idle.is_set()


def test_a_flushed_log_needs_no_thread(harness: FlusherHarness) -> None:
    partition = harness.append("a")
    harness.loop.pending[0].run()
    harness.flusher.request(partition)
    assert len(harness.loop.pending) == 1


def test_a_log_that_the_cleaner_flushed_is_reported_as_flushed(harness: FlusherHarness) -> None:
    """As the cleaner does before it swaps segments."""
    harness.append("a")
    partition = harness.append("b")
    promise = partition.acknowledged(0)
    partition.log.flush()
    harness.loop.pending[0].run()
    assert promise is not None
    assert promise.done


def test_a_topic_deleted_during_its_flush_does_not_stop_the_node(harness: FlusherHarness) -> None:
    """Its directory is renamed while a thread syncs it: that is no fault of the disk."""
    gone, other = harness.append("a"), harness.append("b")
    promise = other.acknowledged(0)
    harness.node.delete_topic("a")
    harness.loop.pending[0].run()
    assert gone.is_closed
    assert not harness.faults
    harness.loop.pending[1].run()
    assert promise is not None
    assert promise.done


def test_a_topic_deleted_before_its_flush_does_not_affect_others(harness: FlusherHarness) -> None:
    harness.append("a")
    waiting = harness.append("b").acknowledged(0)
    gone = harness.append("c").acknowledged(0)
    harness.node.delete_topic("c")
    for work in harness.loop.pending:
        work.run()
    assert not harness.faults
    assert waiting is not None
    assert waiting.value() == ErrorCode.NONE
    assert gone is not None
    assert gone.value() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_failed_log_does_not_keep_others_from_being_flushed(harness: FlusherHarness) -> None:
    """As after a full disk whose half-written batch could not be cut off again."""
    harness.append("a")
    torn, other = harness.append("b"), harness.append("c").acknowledged(0)
    torn.log.fault = StorageFault("b-0", OSError("full"))
    for work in harness.loop.pending:
        work.run()
    assert other is not None
    assert other.value() == ErrorCode.NONE
    assert not harness.faults


def test_a_failed_sync_is_reported_and_acknowledges_nothing(harness: FlusherHarness) -> None:
    promise = harness.append("a").acknowledged(0)
    harness.node.files.sync_fails = True
    harness.loop.pending[0].run()
    assert len(harness.faults) == 1
    assert promise is not None
    assert not promise.done
    assert harness.on_disk()["a-0"] == 0


def test_a_log_whose_sync_failed_does_not_keep_the_flusher_busy(harness: FlusherHarness) -> None:
    """Otherwise the node, which stops because of the failure, would wait for it forever."""
    harness.append("a")
    harness.append("a")  # requests another flush while the first one runs
    harness.node.files.sync_fails = True
    harness.loop.pending[0].run()
    assert len(harness.loop.pending) == 1
    assert len(harness.faults) == 2
    assert harness.flusher._idle.is_set()


def test_a_flush_without_a_thread_stops_the_node(harness: FlusherHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(harness.loop, "run_in_executor", refuse)
    harness.append("a")
    harness.append("b")
    assert [str(fault) for fault in harness.faults] == ["can't start new thread"]
    asyncio.run(harness.flusher.finish())
    assert harness.on_disk() == {"a-0": 0, "b-0": 0, "c-0": 0}


def test_an_unexpected_error_of_a_flush_stops_the_node(
    harness: FlusherHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FlushWork) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(FlushWork, "sync", fail)
    harness.append("a")
    harness.loop.pending[0].run()
    assert [str(fault) for fault in harness.faults] == ["a fault of ours"]
    asyncio.run(harness.flusher.finish())
    assert harness.on_disk() == {"a-0": 0, "b-0": 0, "c-0": 0}


def test_a_flush_without_disk_space_is_postponed_and_retried(
    harness: FlusherHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = harness.append("a")
    reports: list[str] = []
    partition.report_fault = lambda what, _: reports.append(what)
    promise, other = partition.acknowledged(0), harness.append("b").acknowledged(0)
    harness.node.files.bytes_left = 0
    monkeypatch.setattr(Partition, "flushed", lambda partition: pytest.fail("nothing was flushed"))
    harness.loop.pending[0].run()
    monkeypatch.undo()
    assert not harness.faults
    assert reports == ["a-0: flush failed and will be retried"]
    assert promise is not None
    assert not promise.done
    harness.node.files.bytes_left = None
    harness.loop.pending[1].run()
    assert other is not None
    assert other.value() == ErrorCode.NONE
    harness.flusher.request(partition)
    harness.loop.pending[2].run()
    assert promise.value() == ErrorCode.NONE


def test_a_postponed_flush_is_acknowledged_if_another_flush_succeeded(harness: FlusherHarness) -> None:
    partition = harness.append("a")
    promise = partition.acknowledged(0)
    partition.report_fault = lambda what, fault: None
    work = harness.loop.pending[0]
    harness.node.files.bytes_left = 0
    work.result()
    harness.node.files.bytes_left = None
    partition.log.flush()
    work.result = lambda: None  # type: ignore[method-assign]
    work.run()
    assert promise is not None
    assert promise.value() == ErrorCode.NONE


def test_a_metadata_log_without_disk_space_is_flushed_later(harness: FlusherHarness) -> None:
    node = harness.node
    node.assembly.driver._flusher = harness.flusher
    node.metadata_log.epochs.is_dirty = True  # the flush writes their checkpoint first
    answer = node.allocate_producer_ids()
    node.files.bytes_left = 0
    harness.loop.pending[0].run()
    node.files.bytes_left = None
    node.timers.advance(SHORTAGE_RETRY_MS - 1)
    assert len(harness.loop.pending) == 1, "it is not retried all the time"
    node.timers.advance(1)
    assert not answer.done
    harness.loop.pending[1].run()
    assert answer.done
    assert node.faults == []


def test_the_metadata_log_is_flushed_the_same_way(harness: FlusherHarness) -> None:
    harness.node.assembly.driver._flusher = harness.flusher
    answer = harness.node.allocate_producer_ids()
    assert not answer.done
    harness.loop.pending[0].run()
    assert answer.done
    log = harness.node.store.get(METADATA)
    assert log is not None
    assert log.recovery_point == log.end_offset
