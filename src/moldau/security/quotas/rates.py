"""Rates over the last seconds, measured as Kafka does, and the pause that keeps a client to its limit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

PAUSE_MS_MAX: Final = (1 << 31) - 1
"""The largest throttle time that a response can hold."""


@dataclass(frozen=True, slots=True)
class Window:
    """`count` samples of `size_ms` each."""

    count: int = 11
    size_ms: int = 1000

    @property
    def total_ms(self) -> int:
        return self.count * self.size_ms


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    total: float


@dataclass(slots=True)
class Rate:
    """The sum of recorded values, divided by the time. A short history counts as at least all samples but one: a first
    burst is spread over ten seconds."""

    window: Window
    _samples: deque[_Sample] = field(default_factory=deque)

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one takes a value back."""
        newest = self._samples[-1] if self._samples else None
        if newest is None or now_ms - newest.start_ms >= self.window.size_ms:
            newest = _Sample(now_ms, now_ms, 0.0)
            self._samples.append(newest)
            if len(self._samples) > self.window.count + 1:
                self._samples.popleft()
        newest.total += value
        newest.last_ms = now_ms

    def pause_ms(self, limit: float, now_ms: int) -> int:
        """Return how long to pause so that the rate falls to the limit; 0 if it is not above."""
        self._forget_old(now_ms)
        window_ms = self._window_ms(now_ms)
        rate = sum(sample.total for sample in self._samples) / (window_ms / 1000)
        return 0 if rate <= limit else _pause_ms((rate - limit) / limit * window_ms)

    def is_idle(self, now_ms: int, idle_ms: int) -> bool:
        return not self._samples or now_ms - self._samples[-1].last_ms >= idle_ms

    def _forget_old(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0].last_ms >= self.window.total_ms:
            self._samples.popleft()

    def _window_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = self.window.count - 1 - elapsed_ms // self.window.size_ms
        return max(1, elapsed_ms + max(0, missing) * self.window.size_ms)


@dataclass(slots=True)
class TokenBucket:
    """Tokens come at the rate of the limit, up to a burst. They may be overdrawn once; then nothing is allowed until
    the debt is paid."""

    burst_seconds: float
    _tokens: float | None = None
    _at_ms: int = 0

    def debt_ms(self, limit: float, now_ms: int) -> int:
        """Return how long it takes until the debt is paid; 0 if there is none."""
        tokens = self._refill(limit, now_ms)
        return 0 if tokens >= 0 else _pause_ms(-tokens / limit * 1000)

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = self._refill(limit, now_ms) - count

    def _refill(self, limit: float, now_ms: int) -> float:
        burst = limit * self.burst_seconds
        earned = (now_ms - self._at_ms) * limit / 1000
        self._tokens = burst if self._tokens is None else min(burst, self._tokens + earned)
        self._at_ms = now_ms
        return self._tokens


def _pause_ms(wanted_ms: float) -> int:
    """Return a pause of at least a millisecond that a response can hold, also for an absurdly small limit."""
    return max(1, round(min(wanted_ms, PAUSE_MS_MAX)))
