"""When the reserve on the disk is filled: at the start, and later in a thread once some of it was used."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from harness.raised_faults import own_work

from moldau.base.errors import StorageFault
from moldau.base.promise import Promise
from moldau.log.reserve import Reserve
from moldau.runtime.reserve_upkeep import LOOK_MS, ReserveUpkeep
from moldau.testing.clock import FakeTimers
from moldau.testing.files import MemoryFiles

SIZE = 1 << 20


class Harness:
    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.mkdir("data")
        self.timers = FakeTimers()
        self.threads: list[tuple[Callable[[], None], Promise[StorageFault | None]]] = []
        self.reserve = Reserve(self.files, "data", SIZE, lambda: (1 << 40, 1 << 40), lambda *_: None)
        self.upkeep = ReserveUpkeep(self.reserve, self._run_in_thread, own_work(self.timers), self.timers.clock)

    def _run_in_thread(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        done: Promise[StorageFault | None] = Promise()
        self.threads.append((work, done))
        return done

    def run_thread(self) -> None:
        work, done = self.threads.pop()
        try:
            work()
        except StorageFault as fault:
            done.complete(fault)
        else:
            done.complete(None)

    def use_some(self) -> None:
        self.reserve.give_back(SIZE // 2)
        self.reserve.is_short = True


def test_it_is_there_when_the_node_starts_and_costs_nothing_while_it_is_whole() -> None:
    harness = Harness()
    harness.upkeep.start()
    assert harness.reserve.held == SIZE
    harness.timers.advance(10 * LOOK_MS)
    assert harness.threads == []


def test_it_is_filled_again_in_a_thread(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    harness = Harness()
    harness.upkeep.start()
    harness.use_some()
    harness.files.bytes_left = 100
    harness.timers.advance(LOOK_MS)
    harness.timers.advance(5 * LOOK_MS)
    assert len(harness.threads) == 1, "one thread at a time, also on a slow disk"
    harness.run_thread()
    assert harness.reserve.held == SIZE // 2
    assert "the reserve is not filled, retried later: data/.moldau_reserve: No space left" in caplog.text
    harness.files.bytes_left = None
    harness.timers.advance(LOOK_MS)
    harness.run_thread()
    assert harness.reserve.held == SIZE
    assert "there is room on the disk again: the reserve is whole" in caplog.text


def test_a_disk_that_refuses_it_does_not_prevent_the_start(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StorageFault("data", OSError(errno.EIO, "planned fault"))

    harness = Harness()
    monkeypatch.setattr(harness.files, "open", refuse)
    harness.upkeep.start()
    assert "planned fault" in caplog.text


def test_nothing_happens_after_a_stop() -> None:
    harness = Harness()
    harness.upkeep.start()
    harness.use_some()
    harness.timers.advance(LOOK_MS)
    harness.upkeep.stop()
    harness.run_thread()
    harness.timers.advance(10 * LOOK_MS)
    assert harness.threads == []
