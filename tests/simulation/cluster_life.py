"""One run of a process in virtual time: what it asked for is void when it dies, waits while it is stopped, and goes by
its machine's own clock, which is never quite right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from moldau.testing.clock import START_MS, FakeTimers
from moldau.testing.files import PowerLoss

Call = Callable[[], None]
RATE_ONE = 10_000
"""A clock's rate in ten thousandths of the true one."""


class MachineClock:
    """The clocks of one machine: the one that measures goes a little fast or slow, the one on the wall is also set."""

    def __init__(self, timers: FakeTimers, rate: int = RATE_ONE) -> None:
        self._true = timers.clock
        self._since_ms = self._true.elapsed_ms()
        self._shown_ms = 0
        self._rate = rate
        self._wall_ms = START_MS + self._since_ms

    def now_ms(self) -> int:
        return self._wall_ms + self.elapsed_ms()

    def elapsed_ms(self) -> int:
        return self._shown_ms + (self._true.elapsed_ms() - self._since_ms) * self._rate // RATE_ONE

    def jump(self, by_ms: int) -> None:
        self._wall_ms += by_ms

    def set_rate(self, rate: int) -> None:
        self._shown_ms, self._since_ms = self.elapsed_ms(), self._true.elapsed_ms()
        self._rate = rate

    def true_delay_ms(self, delay_ms: int) -> int:
        """So long it takes until this clock has gone on by as much: never a moment less."""
        due_ms = self.elapsed_ms() + max(delay_ms, 0) - self._shown_ms
        return self._since_ms - (-due_ms * RATE_ONE // self._rate) - self._true.elapsed_ms()


class Life:
    """`on_power_loss` is called if the lights go out in the middle of what it does, `on_failure` if that fails by a
    fault of ours."""

    def __init__(
        self, host: str, on_power_loss: Call | None = None, on_failure: Callable[[Exception], None] | None = None
    ) -> None:
        self.host = host
        self.is_alive = True
        self.is_stopped = False
        self._on_power_loss = on_power_loss
        self._on_failure = on_failure
        self._held: deque[Call] = deque()

    def act(self, call: Call) -> None:
        """Something happens to the process: a timer beats, a message arrives."""
        if not self.is_alive:
            return
        if self.is_stopped:
            self._held.append(call)
            return
        try:
            call()
        except PowerLoss:
            assert self._on_power_loss is not None
            self._on_power_loss()
        except Exception as failure:
            if self._on_failure is None:
                raise
            self._on_failure(failure)

    def stop(self) -> None:
        """As SIGSTOP does."""
        self.is_stopped = True

    def go_on(self) -> None:
        """All that came meanwhile happens at once, in its order."""
        self.is_stopped = False
        held, self._held = self._held, deque()
        for call in held:
            self.act(call)

    def end(self) -> None:
        self.is_alive = False
        self._held.clear()


class LifeTimer:
    __slots__ = ("_call", "_life")

    def __init__(self, life: Life, call: Call) -> None:
        self._life = life
        self._call: Call | None = call

    def cancel(self) -> None:
        self._call = None

    def beat(self) -> None:
        if self._call is not None:
            self._life.act(self._ring)

    def _ring(self) -> None:
        """A timer that was cancelled while its process was stopped does not ring either."""
        call, self._call = self._call, None
        if call is not None:
            call()


class LifeTimers:
    """The world's timers as one process sees them."""

    def __init__(self, timers: FakeTimers, life: Life, clock: MachineClock) -> None:
        self._timers = timers
        self._life = life
        self._clock = clock

    def soon(self, call: Call) -> None:
        self._timers.soon(lambda: self._life.act(call))

    def after_ms(self, delay_ms: int, call: Call) -> LifeTimer:
        timer = LifeTimer(self._life, call)
        self._timers.after_ms(self._clock.true_delay_ms(delay_ms), timer.beat)
        return timer
