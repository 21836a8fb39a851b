"""Sums up Spark's progress reports of a streaming query and formats them as one line. Pure: the caller passes the time.

`moldau.pipelines` has a fuller one for whole pipelines; it may import this package, but not the other way round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from moldau.spark.offsets import offsets_or_empty

State = Literal["starting", "running", "finished", "failed"]
WINDOW_S: Final = 10.0
"""Rows per second are averaged over this many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A query at one moment. None means unknown, or that the query has no such thing."""

    name: str
    state: State = "starting"
    batch_id: int | None = None
    batch_ms: int | None = None
    rows_in: int = 0
    rows_per_second: float = 0.0
    lag_records: int | None = None
    state_rows: int | None = None
    error: str | None = None

    def line(self) -> str:
        parts = [f"{self.name}: {self.state}"]
        if self.batch_id is not None:
            parts.append(f"batch {self.batch_id}" + ("" if self.batch_ms is None else f" ({_seconds(self.batch_ms)})"))
            parts.append(f"{_rows(self.rows_in)} in")
        if self.state == "running" and self.batch_id is not None:
            parts.append(f"{self.rows_per_second:,.{0 if self.rows_per_second >= 10 else 1}f} rows/s")
        if self.lag_records is not None:
            parts.append(f"lag {self.lag_records:,}")
        if self.state_rows is not None:
            parts.append(f"{_rows(self.state_rows)} of state")
        if self.error is not None:
            parts.append(self.error)
        return " · ".join(parts)


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


@dataclass(slots=True)
class Tally:
    """Counts each report once and keeps the progress."""

    progress: Progress
    began_s: float
    """Seconds since the epoch, like all times here; set back if a report shows that the query is older."""
    _last_taken: tuple[Any, ...] | None = None
    _recent: deque[tuple[float, int]] = field(default_factory=deque)
    """(end time, number of rows) of batches within the window."""

    def take(self, reports: Sequence[Mapping[str, Any]], now_s: float) -> None:
        """Count reports of one query, the oldest first; reports counted before are skipped."""
        keys = [(report.get("runId"), report["batchId"], report.get("timestamp")) for report in reports]
        fresh = reports[keys.index(self._last_taken) + 1 :] if self._last_taken in keys else reports
        for report in fresh:
            self._take_one(report)
        if keys:
            self._last_taken = keys[-1]
        while self._recent and self._recent[0][0] < now_s - WINDOW_S:
            self._recent.popleft()
        span_s = min(WINDOW_S, max(now_s - self.began_s, 1.0))
        self.progress = replace(self.progress, rows_per_second=sum(rows for _, rows in self._recent) / span_s)

    def set_state(self, state: State, error: str | None = None) -> None:
        self.progress = replace(self.progress, state=state, error=error)

    def _take_one(self, report: Mapping[str, Any]) -> None:
        rows = int(report.get("numInputRows") or 0)
        durations = report.get("durationMs") or {}
        ran_batch = "addBatch" in durations  # a query without new data also reports, with the id of the next batch
        states = report.get("stateOperators") or ()
        triggered_s = datetime.fromisoformat(report["timestamp"]).timestamp()
        self.began_s = min(self.began_s, triggered_s)
        self._recent.append((triggered_s + durations.get("triggerExecution", 0) / 1000, rows))
        self.progress = replace(
            self.progress,
            state="running",
            batch_id=int(report["batchId"]) if ran_batch else self.progress.batch_id,
            batch_ms=durations.get("triggerExecution") if ran_batch else self.progress.batch_ms,
            rows_in=self.progress.rows_in + rows,
            lag_records=lag(report.get("sources") or ()),
            state_rows=sum(int(each.get("numRowsTotal", 0)) for each in states) if states else None,
        )


def lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of offsets between the query and the ends of its topics, or None if it reads no topic."""
    behind = [
        max(0, latest[where] - offset)
        for source in sources
        if (latest := offsets_or_empty(source.get("latestOffset")))
        for where, offset in offsets_or_empty(source.get("endOffset")).items()
        if where in latest
    ]
    return sum(behind) if behind else None
