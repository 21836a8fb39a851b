"""Virtual time: a clock that stands still until a test advances it, and timers that fire only then.

For tests only. Nothing sleeps, and nothing is random: timers of the same millisecond fire in the order in which they
were set, and `soon` calls run before time advances.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

Call = Callable[[], None]

START_MS = 1_700_000_000_000
"""A date in 2023: realistic for timestamps of records."""

SOON_CALLS_MAX = 100_000
"""Calls without a step of the clock: beyond this, two parts wake each other in an endless loop."""


class FakeClock:
    """The monotonic and the wall clock of a machine. They move together; `jump` moves the wall clock alone."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def move(self, by_ms: int) -> None:
        assert by_ms >= 0, "time cannot go back; use `jump` to set the wall clock"
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back."""
        self._now_ms += by_ms


class FakeTimer:
    __slots__ = ("_call", "due_ms")

    def __init__(self, due_ms: int, call: Call) -> None:
        self.due_ms = due_ms
        self._call: Call | None = call

    def cancel(self) -> None:
        self._call = None

    @property
    def is_pending(self) -> bool:
        return self._call is not None

    def fire(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class FakeTimers:
    """The timers of a clock. Only `advance` moves time."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self._soon: deque[Call] = deque()
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._timer_count = 0

    def soon(self, call: Call) -> None:
        self._soon.append(call)

    def after_ms(self, delay_ms: int, call: Call) -> FakeTimer:
        timer = FakeTimer(self.clock.monotonic_ms() + max(delay_ms, 0), call)
        self._timer_count += 1
        heappush(self._timers, (timer.due_ms, self._timer_count, timer))
        return timer

    @property
    def pending(self) -> int:
        """The number of timers that have not fired and were not cancelled."""
        return sum(timer.is_pending for _, _, timer in self._timers)

    def next_due_ms(self) -> int | None:
        """Return the time until the next timer fires; None if there is none."""
        due = [timer.due_ms for _, _, timer in self._timers if timer.is_pending]
        return min(due) - self.clock.monotonic_ms() if due else None

    def run_soon(self) -> int:
        """Run all `soon` calls, and those that they add; return their number."""
        calls = 0
        while self._soon:
            calls += 1
            assert calls <= SOON_CALLS_MAX, "`soon` calls add each other endlessly"
            self._soon.popleft()()
        return calls

    def run_one_soon(self) -> bool:
        """Run the next `soon` call, for tests that stop in between. False if there is none."""
        if not self._soon:
            return False
        self._soon.popleft()()
        return True

    def run_one_timer(self) -> None:
        """Advance time to the next timer and fire it, without the `soon` calls that it adds."""
        while True:
            due_ms, _, timer = heappop(self._timers)
            if timer.is_pending:
                self.clock.move(max(0, due_ms - self.clock.monotonic_ms()))
                timer.fire()
                return

    def advance(self, by_ms: int) -> None:
        """Advance time by `by_ms`, firing every timer on the way."""
        end_ms = self.clock.monotonic_ms() + by_ms
        self.run_soon()
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heappop(self._timers)
            if timer.is_pending:
                self.clock.move(max(0, due_ms - self.clock.monotonic_ms()))
                timer.fire()
                self.run_soon()
        self.clock.move(end_ms - self.clock.monotonic_ms())
