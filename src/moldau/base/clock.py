"""Clocks and timers as arguments: code gets the time as `now_ms` or from a `Clock`, so that a simulation can set it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NewType, Protocol

WallMs = NewType("WallMs", int)
"""A time by the wall clock. The type checker refuses one where a `MonotonicMs` is wanted, and the other way round."""
MonotonicMs = NewType("MonotonicMs", int)
"""A time by the monotonic clock. A difference of two is a plain number."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch, for record timestamps and retention."""
        ...

    def monotonic_ms(self) -> int:
        """Return a reading of the monotonic clock in milliseconds, for timeouts: only differences have a meaning."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """Timers as an argument, so that a simulation can replace the event loop."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call after the current callback has returned."""
        ...

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> Timer: ...
