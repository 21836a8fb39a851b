"""What a node does by itself, not for a request: its timers, its long work, and what it does with answers of others.

An unexpected exception in any of it goes to `on_fault`, which stops the node. Without that, the work would not go on,
and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from moldau.base.clock import Timer, Timers
from moldau.base.long_work import LongWork, Soon
from moldau.base.loop_watch import name_of
from moldau.base.steps import WaitingSteps

R = TypeVar("R")
P = ParamSpec("P")


def _ignore(_: Any) -> None:
    pass


class OwnWork:
    """The `Timers` of a node's own work. Not for requests: a fault there concerns one client."""

    def __init__(self, timers: Timers, on_fault: Callable[[Exception], None]) -> None:
        self.timers = timers
        """For calls that report their faults themselves, because they are made for nearly every request."""
        self.on_fault = on_fault

    def soon(self, call: Callable[[], None]) -> None:
        self.timers.soon(self.guard(call))

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        return self.timers.after_ms(delay_ms, self.guard(call))

    def long_work(
        self, steps: WaitingSteps[R], on_done: Callable[[R], object] = _ignore, soon: Soon | None = None
    ) -> LongWork[R]:
        """Return work that has not begun. Call it to run the first step now; each further one comes in a later turn of
        the loop, or when `soon` makes the call."""
        return LongWork(soon or self.timers.soon, steps, on_done, self.on_fault)

    def guard(self, call: Callable[P, object]) -> Callable[P, None]:
        """Return `call` for others who call it, such as a promise of the response of another node."""

        def run(*arguments: P.args, **named: P.kwargs) -> None:
            try:
                call(*arguments, **named)
            except Exception as fault:
                self.on_fault(fault)

        run.__qualname__ = name_of(call)  # by which the loop watch names slow calls
        return run
