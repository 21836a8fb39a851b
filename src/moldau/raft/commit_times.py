"""How long the leader's batches take from the append until they are committed, for metrics."""

from __future__ import annotations

from collections import deque
from typing import Final

LAST: Final = 100
WAITING_MAX: Final = 10_000
"""A leader without followers appends and commits nothing: the times of the oldest batches are then forgotten."""


class CommitTimes:
    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int]] = deque(maxlen=WAITING_MAX)
        """(end offset, when it was appended) of batches that are not committed."""
        self._times_ms: deque[int] = deque(maxlen=LAST)
        self.commits = 0

    def appended(self, end_offset: int, now_ms: int) -> None:
        self._waiting.append((end_offset, now_ms))

    def committed(self, high_watermark: int, now_ms: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            self._times_ms.append(now_ms - waiting.popleft()[1])
            self.commits += 1

    def forget(self) -> None:
        """Called when this node leads no longer: others commit the batches, or drop them."""
        self._waiting.clear()

    @property
    def average_ms(self) -> float:
        """The average of the last batches; 0 if there is none."""
        return sum(self._times_ms) / len(self._times_ms) if self._times_ms else 0.0

    @property
    def longest_ms(self) -> int:
        return max(self._times_ms, default=0)
