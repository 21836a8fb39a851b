"""A value that comes later: what a handler gives back when the answer must wait for a commit, a flush or new data.

It is a future without a loop: completing it calls the one who waits, at once and in the same thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")
_PENDING = object()


class Later(Generic[T]):
    __slots__ = ("_value", "_waiter")

    def __init__(self) -> None:
        self._value: object = _PENDING
        self._waiter: Callable[[T], None] | None = None

    @property
    def done(self) -> bool:
        return self._value is not _PENDING

    def value(self) -> T:
        assert self._value is not _PENDING, "asked before it was there"
        return cast(T, self._value)

    def complete(self, value: T) -> None:
        assert self._value is _PENDING, "completed twice"
        self._value = value
        if self._waiter is not None:
            self._waiter(value)

    def then(self, waiter: Callable[[T], None]) -> None:
        """Calls `waiter` with the value, now if it is there already. One waiter only."""
        assert self._waiter is None, "two waiters"
        self._waiter = waiter
        if self._value is not _PENDING:
            waiter(cast(T, self._value))

    def map(self, change: Callable[[T], U]) -> Later[U]:
        """The same promise with its value changed on the way."""
        changed: Later[U] = Later()
        self.then(lambda value: changed.complete(change(value)))
        return changed
