"""What this node's readers of a view have had evaluated, as plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.base.ids import TopicPartition
from moldau.views.jobs import Evaluated

REPORT_INTERVAL_MS: Final = 60_000
"""One line of the log for each view, however often its readers ask again."""
ReportFailure = Callable[[str], None]


class ViewCounts:
    __slots__ = (
        "_report",
        "_reported",
        "_silent_until_ms",
        "failures",
        "last_failure",
        "seen",
        "shown",
        "skipped_runs",
        "unreadable",
    )

    def __init__(self, report: ReportFailure) -> None:
        self._report = report
        self._reported = 0
        """Failures that were reported, each or by their number."""
        self._silent_until_ms = 0
        self.seen = 0
        """Records of the source that were evaluated; a record counts again each time."""
        self.shown = 0
        self.unreadable = 0
        self.skipped_runs = 0
        """Runs that were not read, because the index says that nothing in them can match."""
        self.failures = 0
        self.last_failure = ""

    def add(self, result: Evaluated) -> None:
        self.seen += result.seen
        self.shown += result.shown
        self.unreadable += result.unreadable

    def failed(self, partition: TopicPartition, offset: int, last_offset: int, why: str, now_ms: int) -> None:
        self.failures += 1
        place = f"offset {offset}" if last_offset == offset else f"offsets {offset} to {last_offset}"
        self.last_failure = f"{partition} at {place}: {why}"
        if now_ms >= self._silent_until_ms:
            others = self.failures - self._reported - 1
            self._report(f"view {self.last_failure}" + (f" ({others} more failures before)" if others else ""))
            self._reported = self.failures
            self._silent_until_ms = now_ms + REPORT_INTERVAL_MS
