"""Virtual time: a clock that stands still until it is told to go on, and timers that beat only then.

For tests only. Nothing here sleeps, and nothing happens by chance: what is due at the same millisecond happens in the
order in which it was asked for, and what was asked for `soon` happens before time goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

Call = Callable[[], None]

START_MS = 1_700_000_000_000
"""A date in 2023: late enough for records to have a timestamp worth the name."""

SOON_CALLS_MAX = 100_000
"""Calls without a step of the clock: beyond it two parts are waking each other for ever."""


class FakeClock:
    """Both of a machine's clocks. They move together; `jump` moves the one on the wall alone."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def elapsed_ms(self) -> int:
        return self._elapsed_ms

    def move(self, by_ms: int) -> None:
        assert by_ms >= 0, "time does not go back; a wall clock that does is `jump`"
        self._now_ms += by_ms
        self._elapsed_ms += by_ms

    def jump(self, by_ms: int) -> None:
        """Somebody sets the clock on the wall."""
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

    def beat(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class FakeTimers:
    """The beats of a clock. `advance` is the only way on."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self._soon: deque[Call] = deque()
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._asked = 0

    def soon(self, call: Call) -> None:
        self._soon.append(call)

    def after_ms(self, delay_ms: int, call: Call) -> FakeTimer:
        timer = FakeTimer(self.clock.elapsed_ms() + max(delay_ms, 0), call)
        self._asked += 1
        heappush(self._timers, (timer.due_ms, self._asked, timer))
        return timer

    @property
    def pending(self) -> int:
        """Timers that wait for their time and were not cancelled."""
        return sum(timer.is_pending for _, _, timer in self._timers)

    def next_due_ms(self) -> int | None:
        """How long until the next timer beats; None if none waits."""
        due = [timer.due_ms for _, _, timer in self._timers if timer.is_pending]
        return min(due) - self.clock.elapsed_ms() if due else None

    def run_soon(self) -> int:
        """Does all that was asked for soon, and what that asks for in turn; gives how many calls it was."""
        calls = 0
        while self._soon:
            calls += 1
            assert calls <= SOON_CALLS_MAX, "calls beget calls without end"
            self._soon.popleft()()
        return calls

    def run_one_soon(self) -> bool:
        """Does the next of what was asked for soon: for who wants to stop in between. False if there is nothing."""
        if not self._soon:
            return False
        self._soon.popleft()()
        return True

    def advance(self, by_ms: int) -> None:
        """Lets so much time pass, stopping at every beat on the way."""
        end_ms = self.clock.elapsed_ms() + by_ms
        self.run_soon()
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heappop(self._timers)
            if timer.is_pending:
                self.clock.move(max(0, due_ms - self.clock.elapsed_ms()))
                timer.beat()
                self.run_soon()
        self.clock.move(end_ms - self.clock.elapsed_ms())
