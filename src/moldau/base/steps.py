"""Long work in steps, so that other work can run in between. `long_work` runs them, each in a turn of the event loop.

There is one protocol: a step ends at `yield`, after which others run, or at `yield promise`, after which the work goes
on when the promise is done. `TurnItems` says when a turn has had enough.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

from moldau.base.promise import Promise

R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")
Steps = Generator[None, None, R]
"""Work in steps that waits for nothing, and what it returns in the end."""
WaitingSteps = Generator[Promise[float] | None, None, R]
"""Work in steps. A promise that it waits for is one of seconds: how long a thread worked for it."""


def finish(steps: Steps[R]) -> R:
    """Run all steps at once and return their result."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: R = done.value
        return result


def split(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """Return the items in parts of `count`."""
    return (items[first : first + count] for first in range(0, len(items), count))


class TurnItems:
    """Counts the items of a long request that are handled in one turn of the loop."""

    __slots__ = ("_left", "items_a_turn")

    def __init__(self, items_a_turn: int) -> None:
        self.items_a_turn = self._left = items_a_turn

    @property
    def left(self) -> int:
        return self._left

    def count(self, count: int) -> None:
        """Count these items, at least one."""
        self._left -= max(1, count)

    def is_over(self) -> bool:
        """Return whether the turn must end before the next item; if so, what is counted next is in another one."""
        if self._left > 0:
            return False
        self._left = self.items_a_turn
        return True

    def ends_after(self, count: int) -> bool:
        """Count these items, at least one; return whether the turn must end."""
        self._left -= max(1, count)
        return self._left <= 0 and self.is_over()


def map_in_steps(turn: TurnItems, items: Sequence[T], change: Callable[[T], U]) -> Steps[list[U]]:
    """Return `change(item)` of each item. The step ends whenever the turn is over."""
    changed: list[U] = []
    for some in split(items, turn.items_a_turn):
        changed += map(change, some)
        if turn.ends_after(len(some)):
            yield
    return changed


def checking(steps: WaitingSteps[R], check: Callable[[], object]) -> WaitingSteps[R]:
    """Call `check` before each step but the first: it raises an error if what the steps work on is gone."""
    try:
        while True:
            yield next(steps)
            check()
    except StopIteration as done:
        result: R = done.value
        return result
    finally:
        steps.close()


def no_steps(result: R) -> Steps[R]:
    """Return a result that takes no work, for callers that expect steps."""
    yield from ()
    return result
