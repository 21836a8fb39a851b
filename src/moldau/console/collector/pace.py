"""How often each part of the cluster is read: at its period, and never more than a share of one core. Pure.

A step that took CPU time waits in proportion: what costs a second of work is read every twenty seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

SHARE_OF_A_CORE: Final = 0.05
RESTING_FACTOR: Final = 5.0
"""How much slower everything is read while nobody looks."""
BACKOFF_SECONDS: Final = (0.5, 1.0, 2.0, 5.0)


class Pace:
    def __init__(self, periods: Mapping[str, float]) -> None:
        self._periods = periods
        self._due = dict.fromkeys(periods, 0.0)
        self._hurried: set[str] = set()
        """Steps that are wanted again, although one of them may be running."""
        self._failures = 0

    def due(self, now: float) -> Iterator[str]:
        """Yield the steps that are due, in their order."""
        for step in self._periods:
            if self.is_due(step, now):
                yield step

    def is_due(self, step: str, now: float) -> bool:
        return self._due[step] <= now

    def begin(self, step: str) -> None:
        self._hurried.discard(step)

    def done(self, step: str, now: float, cpu_seconds: float, resting: bool) -> None:
        self._failures = 0
        period = self._periods[step] * (RESTING_FACTOR if resting else 1.0)
        if step not in self._hurried:
            self._due[step] = now + max(period, cpu_seconds / SHARE_OF_A_CORE)

    def postpone(self, step: str, until: float) -> None:
        """For what the user may not read, or the cluster does not offer: ask seldom."""
        self._due[step] = until

    def failed(self, now: float) -> None:
        """Nobody answers: wait before everything, longer each time."""
        wait = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        for step in self._due:
            self._due[step] = max(self._due[step], now + wait)

    def hurry(self, *steps: str) -> None:
        """Something changed: read these at once, or all."""
        for step in steps or self._due:
            self._hurried.add(step)
            self._due[step] = 0.0

    def seconds_until_due(self, now: float) -> float:
        return max(0.0, min(self._due.values()) - now)
