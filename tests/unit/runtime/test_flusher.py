"""Flushing logs in a thread: many share one flush, and changes during a flush do no harm."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from in_memory_node import InMemoryNode

from moldau.assembly.assembly import METADATA
from moldau.base.errors import ErrorCode, StorageFault
from moldau.log.flush import FlushWork
from moldau.replica.partition import Partition
from moldau.runtime.flusher import LogFlusher


class Work:
    """Runs the work of a thread when the test asks for it."""

    def __init__(self, call: Callable[..., None], *arguments: Any) -> None:
        self._run = partial(call, *arguments)
        self._done: Callable[[Any], None] = lambda _: None

    def add_done_callback(self, done: Callable[[Any], None]) -> None:
        self._done = done

    def result(self) -> None:
        self._run()

    def run(self) -> None:
        self._done(self)


class ThreadInHand:
    """A loop of which only `run_in_executor` is used."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def run_in_executor(self, _: None, call: Callable[..., None], *arguments: Any) -> Work:
        self.works.append(Work(call, *arguments))
        return self.works[-1]


class Desk:
    def __init__(self) -> None:
        self.node = InMemoryNode().start()
        for name in ("a", "b", "c"):
            self.node.create_topic(name, flush_messages="1")
        self.loop = ThreadInHand()
        self.faults: list[Exception] = []
        self.flusher = LogFlusher(self.loop, self.faults.append, threads=1)  # type: ignore[arg-type]
        for partition in self.node.partitions:
            partition._flusher = self.flusher

    def append(self, name: str) -> Partition:
        self.node.append(name)
        return self.node.partition(name)

    def on_disk(self) -> dict[str, int]:
        return {str(each.name): each.high_watermark for each in self.node.partitions}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_requests_during_a_flush_are_served_by_the_next(desk: Desk) -> None:
    desk.append("a")
    desk.append("b")
    desk.append("b")
    desk.append("a")
    assert len(desk.loop.works) == 1
    desk.loop.works[0].run()
    assert desk.on_disk()["a-0"] >= 1
    assert len(desk.loop.works) == 2
    desk.loop.works[1].run()
    assert desk.on_disk() == {"a-0": 2, "b-0": 2, "c-0": 0}
    assert len(desk.loop.works) == 2, "no third flush was requested"


def test_logs_are_synced_side_by_side_each_by_one_thread(desk: Desk) -> None:
    desk.flusher._threads = 2
    desk.append("a")
    desk.append("b")
    desk.append("c")
    desk.append("a")
    desk.loop.works[0].run()
    first, second = desk.loop.works[1:]
    first.run()
    assert sorted(desk.on_disk().values()) == [0, 0, 1], "nothing is reported before all threads are done"
    second.run()
    assert desk.on_disk() == {"a-0": 2, "b-0": 1, "c-0": 1}
    assert len(desk.loop.works) == 3


def test_requests_from_callbacks_wait_for_one_next_flush(desk: Desk) -> None:
    """The quorum requests its next flush while the last one is reported. Two flushes must not overlap."""
    desk.append("c")
    for name in ("a", "b"):
        durable = desk.append(name).acknowledged(0)
        assert durable is not None
        durable.then(lambda _, name=name: desk.append(name))
    desk.loop.works[0].run()
    desk.loop.works[1].run()
    assert len(desk.loop.works) == 3
    assert not desk.flusher._idle.is_set()
    desk.loop.works[2].run()
    assert desk.on_disk() == {"a-0": 2, "b-0": 2, "c-0": 1}
    assert desk.flusher._idle.is_set()


def test_a_flushed_log_needs_no_thread(desk: Desk) -> None:
    partition = desk.append("a")
    desk.loop.works[0].run()
    desk.flusher.request(partition)
    assert len(desk.loop.works) == 1


def test_a_log_that_the_cleaner_flushed_is_reported_as_flushed(desk: Desk) -> None:
    """As the cleaner does before it swaps segments."""
    desk.append("a")
    partition = desk.append("b")
    promise = partition.acknowledged(0)
    partition.log.flush()
    desk.loop.works[0].run()
    assert promise is not None
    assert promise.done


def test_a_topic_deleted_during_its_flush_does_not_stop_the_node(desk: Desk) -> None:
    """Its directory is renamed while a thread syncs it: that is no fault of the disk."""
    gone, other = desk.append("a"), desk.append("b")
    promise = other.acknowledged(0)
    desk.node.delete_topic("a")
    desk.loop.works[0].run()
    assert gone.is_closed
    assert not desk.faults
    desk.loop.works[1].run()
    assert promise is not None
    assert promise.done


def test_a_topic_deleted_before_its_flush_does_not_affect_others(desk: Desk) -> None:
    desk.append("a")
    waiting = desk.append("b").acknowledged(0)
    gone = desk.append("c").acknowledged(0)
    desk.node.delete_topic("c")
    for work in desk.loop.works:
        work.run()
    assert not desk.faults
    assert waiting is not None
    assert waiting.value() == ErrorCode.NONE
    assert gone is not None
    assert gone.value() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_failed_log_does_not_keep_others_from_being_flushed(desk: Desk) -> None:
    """As after a full disk whose half-written batch could not be cut off again."""
    desk.append("a")
    torn, other = desk.append("b"), desk.append("c").acknowledged(0)
    torn.log.fault = StorageFault("b-0", OSError("full"))
    for work in desk.loop.works:
        work.run()
    assert other is not None
    assert other.value() == ErrorCode.NONE
    assert not desk.faults


def test_a_failed_sync_is_reported_and_acknowledges_nothing(desk: Desk) -> None:
    promise = desk.append("a").acknowledged(0)
    desk.node.files.sync_fails = True
    desk.loop.works[0].run()
    assert len(desk.faults) == 1
    assert promise is not None
    assert not promise.done
    assert desk.on_disk()["a-0"] == 0


def test_a_log_whose_sync_failed_does_not_keep_the_flusher_busy(desk: Desk) -> None:
    """Otherwise the node, which stops because of the failure, would wait for it for ever."""
    desk.append("a")
    desk.append("a")  # requests another flush while the first one runs
    desk.node.files.sync_fails = True
    desk.loop.works[0].run()
    assert len(desk.loop.works) == 1
    assert len(desk.faults) == 2
    assert desk.flusher._idle.is_set()


def test_a_flush_without_a_thread_stops_the_node(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(desk.loop, "run_in_executor", refuse)
    desk.append("a")
    desk.append("b")
    assert [str(fault) for fault in desk.faults] == ["can't start new thread"]
    asyncio.run(desk.flusher.finish())
    assert desk.on_disk() == {"a-0": 0, "b-0": 0, "c-0": 0}


def test_an_unexpected_error_of_a_flush_stops_the_node(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: FlushWork) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(FlushWork, "sync", fail)
    desk.append("a")
    desk.loop.works[0].run()
    assert [str(fault) for fault in desk.faults] == ["a fault of ours"]
    asyncio.run(desk.flusher.finish())
    assert desk.on_disk() == {"a-0": 0, "b-0": 0, "c-0": 0}


def test_a_flush_without_disk_space_is_postponed_and_retried(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = desk.append("a")
    reports: list[str] = []
    partition.report_fault = lambda what, _: reports.append(what)
    promise, other = partition.acknowledged(0), desk.append("b").acknowledged(0)
    desk.node.files.bytes_left = 0
    monkeypatch.setattr(Partition, "flushed", lambda partition: pytest.fail("nothing was brought to disk"))
    desk.loop.works[0].run()
    monkeypatch.undo()
    assert not desk.faults
    assert reports == ["a-0: flush failed and will be retried"]
    assert promise is not None
    assert not promise.done
    desk.node.files.bytes_left = None
    desk.loop.works[1].run()
    assert other is not None
    assert other.value() == ErrorCode.NONE
    desk.flusher.request(partition)
    desk.loop.works[2].run()
    assert promise.value() == ErrorCode.NONE


def test_a_postponed_flush_is_acknowledged_if_another_flush_succeeded(desk: Desk) -> None:
    partition = desk.append("a")
    promise = partition.acknowledged(0)
    partition.report_fault = lambda what, fault: None
    work = desk.loop.works[0]
    desk.node.files.bytes_left = 0
    work.result()
    desk.node.files.bytes_left = None
    partition.log.flush()
    work.result = lambda: None  # type: ignore[method-assign]
    work.run()
    assert promise is not None
    assert promise.value() == ErrorCode.NONE


def test_a_metadata_log_without_disk_space_stops_the_node(desk: Desk) -> None:
    driver = desk.node.assembly.driver
    driver._flusher = desk.flusher
    desk.node.allocate_producer_ids()
    driver.flush_postponed(StorageFault("log", OSError(errno.ENOSPC, "full")))
    assert [str(each) for each in desk.node.faults] == ["log: full"]


def test_the_metadata_log_is_flushed_the_same_way(desk: Desk) -> None:
    desk.node.assembly.driver._flusher = desk.flusher
    answer = desk.node.allocate_producer_ids()
    assert not answer.done
    desk.loop.works[0].run()
    assert answer.done
    log = desk.node.store.get(METADATA)
    assert log is not None
    assert log.recovery_point == log.end_offset
