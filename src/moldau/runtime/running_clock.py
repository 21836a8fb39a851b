"""A monotonic clock that stands still while this node does not run.

A node that gets no processor for some seconds, or whose process is stopped, finds all its timeouts expired at once: the
heartbeats and answers of others are still unread in its sockets. It would start an election, fence brokers and end
sessions although nobody else failed. With this clock, time in which the node did not run does not count.

A timer shows that the node runs. If it is late, the clock stands still from shortly after it was due until it fires.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from moldau.base.clock import Clock, Timer, Timers

log = logging.getLogger("moldau.node")

TICK_MS: Final = 200
GRACE_MS: Final = 100
"""A tick that is late by less than this is not a pause."""
LOGGED_PAUSE_MS: Final = 1_000


class RunningClock:
    def __init__(self, clock: Clock, timers: Timers, on_tick: Callable[[], None] = lambda: None) -> None:
        """`on_tick` is called every `TICK_MS`."""
        self._clock = clock
        self._on_tick = on_tick
        self.now_ms = clock.now_ms
        """The wall clock, which does not stand still; not a method of its own, since every request asks it."""
        self._timers = timers
        self._paused_ms = 0
        """The sum of all pauses."""
        self.pauses = 0
        self._stands_at_ms = clock.monotonic_ms() + TICK_MS + GRACE_MS
        """When the clock stops, by the clock below, unless a tick comes before."""
        self._ticks = 0
        self._timer: Timer = timers.after_ms(TICK_MS, self._tick)

    def monotonic_ms(self) -> int:
        now_ms = self._clock.monotonic_ms()
        return (now_ms if now_ms < self._stands_at_ms else self._stands_at_ms) - self._paused_ms

    @property
    def paused_ms(self) -> int:
        return self._paused_ms

    def stop(self) -> None:
        """Set no more timers. The clock no longer notices pauses."""
        self._timer.cancel()
        self._stands_at_ms = 1 << 62

    def _tick(self) -> None:
        now_ms = self._clock.monotonic_ms()
        pause_ms = now_ms - self._stands_at_ms
        if pause_ms > 0:
            self._paused_ms += pause_ms
            self.pauses += 1
            if pause_ms >= LOGGED_PAUSE_MS and self._ticks:  # the first tick may wait for the recovery of the logs
                log.warning(
                    "this node did not run for %d ms: it got no processor, or something held its event loop up; "
                    "timeouts are extended by that time",
                    pause_ms,
                )
        self._ticks += 1
        self._stands_at_ms = now_ms + TICK_MS + GRACE_MS
        self._timer = self._timers.after_ms(TICK_MS, self._tick)
        self._on_tick()
