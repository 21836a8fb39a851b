"""A disk that refuses a write is tried again; the broker reports that it is full, and that there is room again."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable

import pytest

from moldau.base.errors import StorageFault
from moldau.base.promise import Promise
from moldau.runtime.broker.disk_room import (
    FIRST_PROBE_MS,
    PROBE_BYTES,
    PROBE_FILE,
    PROBE_INTERVAL_MS,
    ROOM_BYTES_MAX,
    ROOM_PIECES,
    DiskRoom,
)
from moldau.runtime.own_work import OwnWork
from moldau.testing.clock import FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.testing.ports import at_once


def fault(number: int = errno.ENOSPC) -> StorageFault:
    return StorageFault("data/a-0/0.log", OSError(number, os.strerror(number)))


class Disk:
    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.mkdir("data")
        self.timers = FakeTimers()
        self.space = (0, 0)
        self.reported: list[str] = []
        self.said: list[bool] = []
        self.probes = 0
        self.faults: list[Exception] = []
        self.room = DiskRoom(
            lambda what, _: self.reported.append(what),
            self.files,
            "data",
            lambda: self.space,
            self.run,
            OwnWork(self.timers, self.faults.append),
            self.said.append,
        )

    def run(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        self.probes += 1
        return at_once(work)

    def refuse(self, number: int = errno.ENOSPC) -> None:
        self.room("a-0: records cannot be appended", fault(number))

    def pass_ms(self, ms: int) -> None:
        self.timers.advance(ms)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def full_disk(disk: Disk) -> Disk:
    disk.files.bytes_left = PROBE_BYTES - 1
    disk.refuse()
    disk.pass_ms(FIRST_PROBE_MS)
    assert disk.said == [True]
    return disk


def test_a_disk_that_accepts_writes_again_is_not_full(disk: Disk) -> None:
    disk.files.bytes_left = PROBE_BYTES
    disk.refuse()
    disk.pass_ms(FIRST_PROBE_MS)
    assert (disk.probes, disk.said) == (1, [])
    assert disk.files.names("data") == []
    assert disk.files.bytes_left == PROBE_BYTES


def test_a_disk_that_goes_on_refusing_is_full(full_disk: Disk) -> None:
    assert full_disk.files.names("data") == []
    assert full_disk.files.bytes_left == PROBE_BYTES - 1
    assert full_disk.reported == ["a-0: records cannot be appended"]


def test_many_refused_writes_are_one_attempt(disk: Disk) -> None:
    for _ in range(100):
        disk.refuse()
    disk.pass_ms(FIRST_PROBE_MS)
    for _ in range(100):
        disk.refuse()
    disk.pass_ms(PROBE_INTERVAL_MS - 1)
    assert disk.probes == 1
    assert len(disk.reported) == 200
    disk.pass_ms(1)
    disk.refuse()
    disk.pass_ms(FIRST_PROBE_MS)
    assert disk.probes == 2


def test_there_must_be_much_more_room_before_the_disk_counts_as_usable(full_disk: Disk) -> None:
    full_disk.files.bytes_left = ROOM_PIECES * PROBE_BYTES - 1
    full_disk.pass_ms(5 * PROBE_INTERVAL_MS)
    assert (full_disk.probes, full_disk.said) == (6, [True])
    full_disk.files.bytes_left = ROOM_PIECES * PROBE_BYTES
    full_disk.pass_ms(PROBE_INTERVAL_MS)
    assert full_disk.said == [True, False]
    full_disk.pass_ms(10 * PROBE_INTERVAL_MS)
    assert full_disk.probes == 7


@pytest.mark.parametrize(
    ("total", "usable", "is_usable"),
    [(1000 << 20, (10 << 20) - 1, False), (1000 << 20, 10 << 20, True), (1 << 50, ROOM_BYTES_MAX, True)],
)
def test_a_part_of_the_disk_must_be_free(full_disk: Disk, total: int, usable: int, is_usable: bool) -> None:
    full_disk.files.bytes_left = None
    full_disk.space = (total, usable)
    full_disk.pass_ms(PROBE_INTERVAL_MS)
    assert full_disk.said == ([True, False] if is_usable else [True])


def test_a_disk_that_fills_up_again_is_reported_again(full_disk: Disk) -> None:
    full_disk.files.bytes_left = None
    full_disk.pass_ms(2 * PROBE_INTERVAL_MS)
    full_disk.files.bytes_left = 0
    full_disk.refuse()
    full_disk.pass_ms(FIRST_PROBE_MS)
    assert full_disk.said == [True, False, True]


def test_a_lack_of_descriptors_says_nothing_about_the_disk(disk: Disk) -> None:
    disk.refuse(errno.EMFILE)
    disk.pass_ms(10_000)
    assert disk.probes == 0
    assert disk.reported != []


@pytest.mark.parametrize("was_full", [True, False])
def test_an_attempt_without_descriptors_changes_nothing(
    disk: Disk, was_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise fault(errno.EMFILE)

    disk.files.bytes_left = 0 if was_full else None
    disk.refuse()
    if was_full:
        disk.pass_ms(FIRST_PROBE_MS)
        disk.files.bytes_left = None
    monkeypatch.setattr(disk.files, "open", refuse)
    disk.pass_ms(FIRST_PROBE_MS + PROBE_INTERVAL_MS)
    assert disk.said == [True] * was_full
    monkeypatch.undo()
    disk.pass_ms(PROBE_INTERVAL_MS)
    assert disk.said == [True, False][: 2 * was_full]


def test_a_disk_that_is_read_only_counts_as_full(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise fault(errno.EROFS)

    monkeypatch.setattr(disk.files, "open", refuse)
    disk.refuse(errno.EROFS)
    disk.pass_ms(FIRST_PROBE_MS)
    assert disk.said == [True]


def test_a_closed_one_does_nothing_more(full_disk: Disk) -> None:
    full_disk.room.close()
    full_disk.files.bytes_left = None
    full_disk.refuse()
    full_disk.pass_ms(10_000)
    assert (full_disk.probes, full_disk.said) == (1, [True])


def test_both_changes_are_logged(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    disk.files.bytes_left = 0
    disk.refuse()
    disk.pass_ms(FIRST_PROBE_MS)
    disk.files.bytes_left = None
    disk.pass_ms(PROBE_INTERVAL_MS)
    refusing, accepting = [record.getMessage() for record in caplog.records]
    assert refusing == (
        f"the disk refuses writes (data/{PROBE_FILE}: No space left on device): "
        "brokers that can write take over, if there are any"
    )
    assert accepting == "the disk accepts writes again: this broker catches up and may lead"


def test_a_fault_after_an_attempt_stops_the_node(disk: Disk) -> None:
    """Without another attempt, the broker would never lead again."""

    def fail(_: bool) -> None:
        raise RuntimeError("a fault of ours")

    done: Promise[StorageFault | None] = Promise()
    disk.room._on_change, disk.room._run_in_thread = fail, lambda _: done
    disk.refuse()
    disk.pass_ms(FIRST_PROBE_MS)
    done.complete(fault())
    assert [str(fault) for fault in disk.faults] == ["a fault of ours"]
