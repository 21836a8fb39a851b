"""A run of a view that fails: what is tried again, and which error readers get when it is not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.replica.view_counts import REPORT_INTERVAL_MS, ViewCounts
from moldau.replica.view_failures import BACKOFFS_MS, FAILURES_MAX, REMEMBERED_MS, RunFailures
from moldau.replica.view_partition import ViewPartition
from moldau.replica.watching import Watchers
from moldau.views.definition import ViewDefinition
from moldau.views.field_ranges import RunIndex
from moldau.views.jobs import Evaluated, ViewFailed
from moldau.views.shown_runs import ResultBudget

GUILTY = ViewFailed("it took too long")
KILLED = ViewFailed("its worker was killed", is_retriable=True)
SHOWN = Evaluated(0, 10, b"batch", (0,), (9,), 10, 1, 0, True)


class World:
    """A view of a source with ten records, its time, its timers and its worker, all by hand."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.asked: list[Promise[Any]] = []
        self.reports: list[str] = []
        self.wakes = 0
        self.log = SimpleNamespace(start_offset=0, end_offset=10, generation=0, read=lambda *_: "records")
        source: Any = SimpleNamespace(
            log=self.log, watchers=Watchers(), state=SimpleNamespace(leader_epoch=1), is_closed=False
        )
        clock: Any = SimpleNamespace(elapsed_ms=lambda: self.now_ms)
        timers: Any = SimpleNamespace(after_ms=lambda delay, call: self.timers.append((self.now_ms + delay, call)))
        unused: Any = None
        self.counts = ViewCounts(self.reports.append)
        self.view = ViewPartition(
            TopicPartition("v", 0), unused, source, ViewDefinition(), self, ResultBudget(1000), RunIndex(),
            self.counts, unused, clock, timers,
        )  # fmt: skip
        self.view.watchers.consumers[self] = None  # type: ignore[index]

    def evaluate(self, *_: object) -> Promise[Any]:
        self.asked.append(Promise())
        return self.asked[-1]

    def close(self) -> None:
        """Nothing runs."""

    def readable(self, *_: object) -> None:
        self.wakes += 1

    def read(self) -> object:
        return self.view.read(0, 1000, 10, True)

    def answer(self, result: Evaluated | ViewFailed) -> None:
        self.asked[-1].complete(result)

    def run_timer(self) -> None:
        self.now_ms, call = self.timers.pop()
        call()


def read_error(world: World) -> ErrorCode:
    with pytest.raises(KafkaError) as failed:
        world.read()
    return failed.value.code


def test_what_the_view_is_guilty_of_is_an_error_at_once() -> None:
    world = World()
    assert world.read() is None
    world.answer(GUILTY)
    assert world.wakes == 1
    assert read_error(world) == ErrorCode.CORRUPT_MESSAGE
    assert len(world.asked) == 1
    world.now_ms += REMEMBERED_MS
    assert world.read() is None
    assert len(world.asked) == 2


def test_a_failure_that_passes_is_never_seen_by_readers() -> None:
    world = World()
    for tries in range(1, len(BACKOFFS_MS) + 1):
        assert world.read() is None
        assert len(world.asked) == tries
        world.answer(KILLED)
        assert world.wakes == tries - 1  # nobody is woken before the time of the next try
        assert world.read() is None
        assert len(world.asked) == tries
        world.run_timer()
        assert world.wakes == tries
    assert world.read() is None
    world.answer(SHOWN)
    assert world.read() == b"batch"
    assert not world.reports
    assert world.counts.failures == 0


def test_a_failure_that_stays_becomes_an_error_after_which_clients_ask_again() -> None:
    world = World()
    for _ in BACKOFFS_MS:
        world.read()
        world.answer(KILLED)
        world.run_timer()
    world.read()
    world.answer(KILLED)
    assert read_error(world) == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.reports == ["view v-0 at offset 0: its worker was killed"]


def test_what_was_read_of_a_truncated_log_is_no_failure() -> None:
    world = World()
    world.read()
    world.log.generation += 1
    world.answer(GUILTY)
    assert world.wakes == 1
    assert world.read() is None
    assert len(world.asked) == 2
    assert not world.reports


def test_failures_at_several_offsets_are_all_remembered_but_not_without_end() -> None:
    failures = RunFailures()
    for offset in range(FAILURES_MAX + 1):
        assert failures.add(offset, GUILTY, 0) is None
    assert [failures.must_wait(offset, 1) for offset in (0, 1, FAILURES_MAX)] == [False, True, True]


def test_the_log_gets_one_line_a_minute() -> None:
    reports: list[str] = []
    counts = ViewCounts(reports.append)
    for now_ms in range(0, REPORT_INTERVAL_MS + 1, REMEMBERED_MS):
        counts.failed(TopicPartition("v", 0), 7, "too long", now_ms)
    assert reports == ["view v-0 at offset 7: too long", "view v-0 at offset 7: too long (11 more failures before)"]
    assert counts.failures == 13
