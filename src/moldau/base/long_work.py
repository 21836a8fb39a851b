"""The one runner of long work: each step of it has a turn of the event loop, so that other work can run in between.

An unexpected exception in any turn ends the work and goes to `on_fault`. What that does is decided by whose work it is:
`runtime/own_work` stops the node, `handlers/replies.run_steps` closes the connection of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from moldau.base.loop_watch import name_of
from moldau.base.promise import Promise
from moldau.base.steps import WaitingSteps

R = TypeVar("R")
Soon = Callable[[Callable[[], None]], None]
"""Makes a call in a later turn of the loop: `Timers.soon`."""


class LongWork(Generic[R]):
    """`on_done` gets the result. It is part of the last turn: what it raises goes to `on_fault` too."""

    def __init__(
        self,
        soon: Soon,
        steps: WaitingSteps[R],
        on_done: Callable[[R], object],
        on_fault: Callable[[Exception], object],
    ) -> None:
        self._soon = soon
        self._steps: WaitingSteps[R] | None = steps
        self._on_done = on_done
        self._on_fault = on_fault
        self._is_in_step = False
        self.__qualname__ = name_of(steps)  # by which the loop watch names slow turns

    @property
    def is_running(self) -> bool:
        """False after the last step, a fault, or `cancel`."""
        return self._steps is not None

    @property
    def is_in_step(self) -> bool:
        """Whether one of its steps is what calls now."""
        return self._is_in_step

    def cancel(self) -> None:
        """End the work: what it works on is gone. If one of its own steps calls this, it is the last one."""
        steps, self._steps = self._steps, None
        if steps is not None and not self._is_in_step:
            steps.close()
            self._forget_callers()

    def __call__(self) -> None:
        """Run the next step, now."""
        steps = self._steps
        if steps is None:
            return
        self._is_in_step = True
        try:
            awaited = self._step(steps)
        except StopIteration as done:
            self._conclude(done.value)
        except Exception as fault:
            self._fail(fault)
        else:
            self._is_in_step = False
            if self._steps is None:
                steps.close()
                self._forget_callers()
            else:
                self.go_on_after(awaited)

    def go_on_after(self, awaited: Promise[float] | None) -> None:
        """Run the next step in a later turn: after others, or when the promise is done."""
        if awaited is None:
            self._soon(self)
        else:
            awaited.then(self._on_awaited)

    def _step(self, steps: WaitingSteps[R]) -> Promise[float] | None:
        return next(steps)

    def _on_awaited(self, took_s: float) -> None:
        self._soon(self)

    def _conclude(self, result: R) -> None:
        on_done, on_fault = self._end()
        try:
            on_done(result)
        except Exception as fault:
            on_fault(fault)

    def _fail(self, fault: Exception) -> None:
        _, on_fault = self._end()
        on_fault(fault)

    def _end(self) -> tuple[Callable[[R], object], Callable[[Exception], object]]:
        callers = self._on_done, self._on_fault
        self._is_in_step = False
        self._steps = None
        self._forget_callers()
        return callers

    def _forget_callers(self) -> None:
        """They often refer to the work. Break the cycle; don't leave it to the garbage collector."""
        self._on_done = self._on_fault = _ended


def _ended(_: object) -> None:
    """Replaces what has been called, or never will be."""


def begin(
    soon: Soon, steps: WaitingSteps[R], on_done: Callable[[R], object], on_fault: Callable[[Exception], object]
) -> LongWork[R] | None:
    """Run the first step now, and return the work if there are more. For what is done all the time and nearly always
    has one step: then no `LongWork` is made."""
    try:
        awaited = next(steps)
    except StopIteration as done:
        result: R = done.value
    except Exception as fault:
        on_fault(fault)
        return None
    else:
        work = LongWork(soon, steps, on_done, on_fault)
        work.go_on_after(awaited)
        return work
    try:
        on_done(result)
    except Exception as fault:
        on_fault(fault)
    return None
