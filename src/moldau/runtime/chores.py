"""What is done again and again while a node runs, each chore at its own interval.

A fault in one of them is not swallowed: whoever runs the node is told, and stops it.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.clock import Timer, Timers


class Chores:
    def __init__(self, timers: Timers, on_fault: Callable[[Exception], None]) -> None:
        self._timers = timers
        self._on_fault = on_fault
        self._waiting: dict[int, Timer] = {}
        self._is_over = False

    def every(self, interval_ms: int, chore: Callable[[], None]) -> None:
        number = len(self._waiting)

        def beat() -> None:
            try:
                chore()
            except Exception as fault:
                self._on_fault(fault)
                return
            wait()

        def wait() -> None:
            if not self._is_over:
                self._waiting[number] = self._timers.after_ms(interval_ms, beat)

        wait()

    def stop(self) -> None:
        self._is_over = True
        for timer in self._waiting.values():
            timer.cancel()
