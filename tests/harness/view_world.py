"""A view whose source, clock, timers and worker are controlled by the test."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.log.reading import Slice
from moldau.replica.view_counts import ViewCounts
from moldau.replica.view_partition import ViewPartition
from moldau.replica.watching import Watchers
from moldau.views.definition import ViewDefinition
from moldau.views.field_ranges import RunIndex
from moldau.views.jobs import Evaluated, ViewFailed
from moldau.views.shown_runs import ResultBudget
from moldau.wire.records import Record, build_batch

BATCH_BYTES = 1000
EVERYTHING = ViewDefinition()


def source_log(batches: int) -> bytes:
    """Batches of one record each, all of the same size."""
    empty = len(build_batch([Record(0, 5, None, b"x" * 900)]))
    value = b"x" * (900 + BATCH_BYTES - empty)
    return b"".join(build_batch([Record(each, 5, None, value)], base_offset=each) for each in range(batches))


class ViewWorld:
    """A view of a source with some batches of one record and BATCH_BYTES each."""

    def __init__(self, batches: int = 10, definition: ViewDefinition = EVERYTHING, kept_bytes: int = 64 << 20) -> None:
        self.now_ms = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.asked: list[Promise[Any]] = []
        self.pieces: list[Any] = []
        """The records of each evaluation that was requested."""
        self.reports: list[str] = []
        self.wakes = 0
        self.segments = SimpleNamespace(replacements=0)
        self.log = SimpleNamespace(
            start_offset=0, end_offset=batches, generation=0, segments=self.segments, read=self._read_source
        )
        content = source_log(batches)
        self._file: Any = SimpleNamespace(pread=lambda size, position: content[position : position + size])
        source: Any = SimpleNamespace(
            log=self.log, watchers=Watchers(), state=SimpleNamespace(leader_epoch=1), is_closed=False
        )
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        timers: Any = SimpleNamespace(
            after_ms=lambda delay, call: self.timers.append((self.now_ms + delay, call)),
            soon=lambda call: self.timers.append((self.now_ms, call)),
        )
        unused: Any = None
        self.counts = ViewCounts(self.reports.append)
        self.view = ViewPartition(
            TopicPartition("v", 0), unused, source, definition, self, ResultBudget(kept_bytes), RunIndex(),
            self.counts, unused, clock, timers,
        )  # fmt: skip
        self.view.watchers.consumers[self] = None  # type: ignore[index]

    def _read_source(self, offset: int, max_bytes: int, up_to: int) -> Slice:
        length = (up_to - offset) * BATCH_BYTES
        return Slice(self._file, offset * BATCH_BYTES, min(length, max(max_bytes, BATCH_BYTES)))

    def evaluate(self, view: str, definition: ViewDefinition, records: Any, partition: int) -> Promise[Any]:
        self.pieces.append(records)
        self.asked.append(Promise())
        return self.asked[-1]

    def withdraw(self, view: str, done: Promise[Any]) -> None:
        self.asked.remove(done)

    def close(self) -> None:
        """Nothing runs."""

    def readable(self, *_: object) -> None:
        self.wakes += 1

    def read(self) -> object:
        return self.view.read(0, 1000, self.log.end_offset, True)

    def answer(self, result: Evaluated | ViewFailed) -> None:
        self.asked[-1].complete(result)

    def run_timer(self) -> None:
        self.now_ms, call = self.timers.pop()
        call()
