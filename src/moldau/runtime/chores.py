"""Runs periodic work of a node, each chore at its own interval, as the node's own work: a chore that fails is not run
again, and stops the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.base.clock import Timer
from moldau.base.loop_watch import name_of
from moldau.runtime.own_work import OwnWork

INTERVAL_MS_MIN: Final = 10
"""A setting of 0, which Kafka allows, must not keep the event loop busy."""


class Chores:
    def __init__(self, own_work: OwnWork) -> None:
        self._own_work = own_work
        self._timers_by_chore: dict[int, Timer] = {}
        self._is_stopped = False

    def every(self, interval_ms: int, chore: Callable[[], None]) -> None:
        """Run `chore` every `interval_ms`, for the first time after one interval."""
        interval_ms = max(interval_ms, INTERVAL_MS_MIN)
        number = len(self._timers_by_chore)

        def run() -> None:
            chore()
            schedule()

        run.__qualname__ = name_of(chore)  # by which the loop watch names slow calls

        def schedule() -> None:
            if not self._is_stopped:
                self._timers_by_chore[number] = self._own_work.after_ms(interval_ms, run)

        schedule()

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._timers_by_chore.values():
            timer.cancel()
