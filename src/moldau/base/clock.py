"""Time, handed in. Pure rooms take `now_ms`; whoever must ask, asks a Clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch: what records and retention speak of."""
        ...

    def elapsed_ms(self) -> int:
        """A clock that never goes back: what timeouts are measured with."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
