"""A view whose source, time, timers and worker are moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.replica.view_counts import ViewCounts
from moldau.replica.view_partition import ViewPartition
from moldau.replica.watching import Watchers
from moldau.views.definition import ViewDefinition
from moldau.views.field_ranges import RunIndex
from moldau.views.jobs import Evaluated, ViewFailed
from moldau.views.shown_runs import ResultBudget


class ViewWorld:
    """A view of a source with ten records, or of a log."""

    def __init__(self, log: Any = None) -> None:
        self.now_ms = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.asked: list[Promise[Any]] = []
        self.pieces: list[Any] = []
        """What was to be evaluated."""
        self.reports: list[str] = []
        self.wakes = 0
        self.segments = SimpleNamespace(replacements=0)
        self.log = log or SimpleNamespace(
            start_offset=0, end_offset=10, generation=0, segments=self.segments, read=lambda *_: "records"
        )
        source: Any = SimpleNamespace(
            log=self.log, watchers=Watchers(), state=SimpleNamespace(leader_epoch=1), is_closed=False
        )
        clock: Any = SimpleNamespace(elapsed_ms=lambda: self.now_ms)
        timers: Any = SimpleNamespace(after_ms=lambda delay, call: self.timers.append((self.now_ms + delay, call)))
        unused: Any = None
        self.counts = ViewCounts(self.reports.append)
        self.view = ViewPartition(
            TopicPartition("v", 0), unused, source, ViewDefinition(), self, ResultBudget(1 << 20), RunIndex(),
            self.counts, unused, clock, timers,
        )  # fmt: skip
        self.view.watchers.consumers[self] = None  # type: ignore[index]

    def evaluate(self, definition: ViewDefinition, records: Any, partition: int) -> Promise[Any]:
        self.pieces.append(records)
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
