"""Decides whether and when a failed query is restarted. `Run` asks after each failure. Pure: it passes the random
numbers and the time.

The pause doubles with each failure up to a maximum, and half of it is random, so that queries that failed together do
not restart together. After a query has run for a while without failure, and has made progress, its pauses are short
again. A batch that fails late, however long it takes, is no progress.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from moldau.pipelines.running.failures import Failure, Kind

FIRST_PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 30.0
HEALTHY_S: Final = 60.0
"""After so long without a failure, a query that has made progress is healthy: its earlier failures no longer count."""
IN_A_ROW_MAX: Final = 20
"""Give up after more failures in a row: their pauses are four to eight minutes together."""
SAME_BATCH_MAX: Final = 3
"""Give up after so many unknown failures of the same batch."""


@dataclass(slots=True)
class Restarts:
    """Counts the failures of one query since it was last healthy."""

    chance: Callable[[], float]
    """A number in [0, 1)."""
    in_a_row: int = 0
    same_batch: int = 0
    """How many of them were unknown failures of the batch `batch_id`."""
    batch_id: int | None = None
    last_failure_s: float | None = None
    last_report: object = None

    def pause_after(self, failure: Failure, batch_id: int | None, report: object, now_s: float) -> float | None:
        """Return the seconds until the query is restarted; None if it is not restarted.

        `report` is the last one of the query: if it is that of the failure before, there was no progress in between.
        A query reports each batch that is done, and also that it waits for data.
        """
        has_progressed = report != self.last_report
        has_run_long = self.last_failure_s is not None and now_s - self.last_failure_s > HEALTHY_S + PAUSE_S_MAX
        if has_progressed and has_run_long:
            self.in_a_row = self.same_batch = 0
        self.last_failure_s, self.last_report = now_s, report
        self.in_a_row += 1
        if failure.kind is Kind.LASTING or self.in_a_row > IN_A_ROW_MAX:
            return None
        if failure.kind is Kind.UNKNOWN:
            self.same_batch = self.same_batch + 1 if batch_id == self.batch_id else 1
            self.batch_id = batch_id
            if self.same_batch >= SAME_BATCH_MAX:
                return None
        return self._pause()

    def _pause(self) -> float:
        whole = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2.0 ** min(self.in_a_row - 1, 30))
        return whole * (0.5 + self.chance() / 2)
