"""A simulated process in virtual time: its timers are dropped when it dies, wait while it is suspended, and go by its
machine's own clock, which drifts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from moldau.testing.clock import START_MS, FakeTimers
from moldau.testing.files import PowerLoss

Call = Callable[[], None]
RATE_ONE = 10_000
"""The rate of a clock without drift: rates are in ten thousandths."""


class MachineClock:
    """The clocks of one machine: the monotonic one drifts, the wall clock also jumps."""

    def __init__(self, timers: FakeTimers, rate: int = RATE_ONE) -> None:
        self._true = timers.clock
        self._since_ms = self._true.monotonic_ms()
        self._shown_ms = 0
        self._rate = rate
        self._wall_ms = START_MS + self._since_ms

    def now_ms(self) -> int:
        return self._wall_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return self._shown_ms + (self._true.monotonic_ms() - self._since_ms) * self._rate // RATE_ONE

    def jump(self, by_ms: int) -> None:
        self._wall_ms += by_ms

    def set_rate(self, rate: int) -> None:
        self._shown_ms, self._since_ms = self.monotonic_ms(), self._true.monotonic_ms()
        self._rate = rate

    def true_delay_ms(self, delay_ms: int) -> int:
        """Return the true time that passes until this clock has advanced by `delay_ms`, rounded up."""
        due_ms = self.monotonic_ms() + max(delay_ms, 0) - self._shown_ms
        return self._since_ms - (-due_ms * RATE_ONE // self._rate) - self._true.monotonic_ms()


class Process:
    """A process. `on_power_loss` is called if the power fails during a call, `on_failure` if a call raises an
    unexpected exception."""

    def __init__(
        self, host: str, on_power_loss: Call | None = None, on_failure: Callable[[Exception], None] | None = None
    ) -> None:
        self.host = host
        self.is_alive = True
        self.is_stopped = False
        self.is_blocked = False
        """Whether it waits for its disk, in the middle of a call."""
        self._on_power_loss = on_power_loss
        self._on_failure = on_failure
        self._held: deque[Call] = deque()

    def act(self, call: Call) -> None:
        """Run a call of the process, such as a timer or a message, unless it is dead; later if it is suspended."""
        if not self.is_alive:
            return
        if self.is_stopped or self.is_blocked:
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
        """Suspend it, as SIGSTOP does."""
        self.is_stopped = True

    def resume(self) -> None:
        """Resume it: everything that waited happens at once, in order."""
        self.is_stopped = False
        self._act_on_held()

    def unblock(self) -> None:
        self.is_blocked = False
        self._act_on_held()

    def _act_on_held(self) -> None:
        held, self._held = self._held, deque()
        for call in held:
            self.act(call)

    def end(self) -> None:
        self.is_alive = False
        self._held.clear()


class ProcessTimer:
    __slots__ = ("_call", "_process")

    def __init__(self, process: Process, call: Call) -> None:
        self._process = process
        self._call: Call | None = call

    def cancel(self) -> None:
        self._call = None

    def fire(self) -> None:
        if self._call is not None:
            self._process.act(self._call_if_pending)

    def _call_if_pending(self) -> None:
        """Call unless it was cancelled while the process was suspended."""
        call, self._call = self._call, None
        if call is not None:
            call()


class ProcessTimers:
    """The simulation's timers as one process sees them."""

    def __init__(self, timers: FakeTimers, process: Process, clock: MachineClock) -> None:
        self._timers = timers
        self._process = process
        self._clock = clock

    def soon(self, call: Call) -> None:
        self._timers.soon(lambda: self._process.act(call))

    def after_ms(self, delay_ms: int, call: Call) -> ProcessTimer:
        timer = ProcessTimer(self._process, call)
        self._timers.after_ms(self._clock.true_delay_ms(delay_ms), timer.fire)
        return timer
