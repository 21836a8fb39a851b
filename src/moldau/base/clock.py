"""Time, handed in. Pure rooms take `now_ms`; whoever must ask, asks a Clock."""

from __future__ import annotations

import time
from collections.abc import Callable
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


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """What beats: handed to the pure rooms, so that a simulation can beat instead of the machine."""

    def soon(self, call: Callable[[], None]) -> None:
        """Calls after what is being done now is done."""
        ...

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> Timer: ...
