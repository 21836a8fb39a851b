"""Runs periodic work of a node, each chore at its own interval.

An exception in a chore ends that chore and goes to `on_fault`, which stops the node. Work that a chore does in several
turns of the loop gets its turns from `OwnWorkTimers`, so that this holds for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.base.clock import Timer, Timers
from moldau.base.loop_watch import name_of

INTERVAL_MS_MIN: Final = 10
"""A setting of 0, which Kafka allows, must not keep the event loop busy."""


class Chores:
    def __init__(self, timers: Timers, on_fault: Callable[[Exception], None]) -> None:
        self._timers = timers
        self._on_fault = on_fault
        self._timers_by_chore: dict[int, Timer] = {}
        self._is_stopped = False

    def every(self, interval_ms: int, chore: Callable[[], None]) -> None:
        """Run `chore` every `interval_ms`, for the first time after one interval."""
        interval_ms = max(interval_ms, INTERVAL_MS_MIN)
        number = len(self._timers_by_chore)

        def run() -> None:
            try:
                chore()
            except Exception as fault:
                self._on_fault(fault)
                return
            schedule()

        run.__qualname__ = name_of(chore)  # by which the loop watch names slow calls

        def schedule() -> None:
            if not self._is_stopped:
                self._timers_by_chore[number] = self._timers.after_ms(interval_ms, run)

        schedule()

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._timers_by_chore.values():
            timer.cancel()


class OwnWorkTimers:
    """Timers for what a node does by itself: an exception in a call goes to `on_fault`, which stops the node. Without
    that, the work would not go on, and nobody would notice. Not for requests: a fault there concerns one client."""

    def __init__(self, timers: Timers, on_fault: Callable[[Exception], None]) -> None:
        self._timers = timers
        self._on_fault = on_fault

    def soon(self, call: Callable[[], None]) -> None:
        self._timers.soon(self._stopping(call))

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        return self._timers.after_ms(delay_ms, self._stopping(call))

    def _stopping(self, call: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                call()
            except Exception as fault:
                self._on_fault(fault)

        run.__qualname__ = name_of(call)
        return run
