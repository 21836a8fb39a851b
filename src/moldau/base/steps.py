"""Long work in steps, each in its own turn of the event loop, so that other work can run in between."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

R = TypeVar("R")
T = TypeVar("T")
Steps = Generator[None, None, R]
"""Work whose step ends at each `yield`, and what it returns in the end."""


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
