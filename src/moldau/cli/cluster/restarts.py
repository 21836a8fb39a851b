"""When nodes that died are started again. Pure: time is an argument."""

from __future__ import annotations

from typing import Final

STABLE_AFTER_S: Final = 60.0
"""A node that ran this long is restarted at once when it dies, whatever happened before."""
FIRST_DELAY_S: Final = 1.0
DELAY_S_MAX: Final = 30.0
DOUBLINGS_MAX: Final = 5


class Restarts:
    """A node that dies is restarted at once. One that dies again and again is restarted after 1, 2, 4 … 30 seconds."""

    def __init__(self) -> None:
        self._started: dict[int, float] = {}
        self._quick_ends: dict[int, int] = {}
        self._due: dict[int, float] = {}

    def started(self, node_id: int, now_s: float) -> None:
        self._started[node_id] = now_s
        self._due.pop(node_id, None)

    def ended(self, node_id: int, now_s: float) -> float:
        """Return after how many seconds the node is restarted."""
        if now_s - self._started[node_id] >= STABLE_AFTER_S:
            self._quick_ends[node_id] = 0
        count = self._quick_ends.get(node_id, 0)
        self._quick_ends[node_id] = count + 1
        delay_s = min(FIRST_DELAY_S * 2 ** min(count - 1, DOUBLINGS_MAX), DELAY_S_MAX) if count else 0.0
        self._due[node_id] = now_s + delay_s
        return delay_s

    def is_due(self, node_id: int, now_s: float) -> bool:
        return node_id in self._due and now_s >= self._due[node_id]
