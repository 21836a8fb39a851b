"""A value that comes later: what a handler gives back when the answer must wait for a commit, a flush or new data.

It is a future without a loop: completing it calls the one who waits, at once and in the same thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from moldau.base.errors import KafkaError

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
        waiter = self._waiter
        if waiter is not None:
            # Who waits often knows the promise: together they would stay until somebody looks for such pairs.
            self._waiter = _told
            waiter(value)

    def then(self, waiter: Callable[[T], None]) -> None:
        """Calls `waiter` with the value, now if it is there already. One waiter only."""
        assert self._waiter is None, "two waiters"
        if self._value is _PENDING:
            self._waiter = waiter
        else:
            self._waiter = _told
            waiter(cast(T, self._value))

    def map(self, change: Callable[[T], U]) -> Later[U]:
        """The same promise with its value changed on the way."""
        changed: Later[U] = Later()
        self.then(lambda value: changed.complete(change(value)))
        return changed

    def lead_to(self, go_on: Callable[[T], U | Later[U]]) -> Later[U]:
        """The promise of what `go_on` gives or promises, once the value is there. A KafkaError that it raises is what
        the promise comes to: there is no caller left to raise it to."""
        promise: Later[U] = Later()

        def come(value: T) -> None:
            try:
                given = go_on(value)
            except KafkaError as refused:
                given = cast(U, refused)
            if isinstance(given, Later):
                given.then(promise.complete)
            else:
                promise.complete(given)

        self.then(come)
        return promise


def _told(_: object) -> None:
    """Stands for a waiter that has been called."""


def once_there(value: T | Later[T], go_on: Callable[[T], U | Later[U]]) -> U | Later[U]:
    """What `go_on` makes of the value: now if it is there, else when it comes."""
    return value.lead_to(go_on) if isinstance(value, Later) else go_on(value)


def kept(value: T | Later[T]) -> Later[T]:
    """A promise of what is there already, for who may be promised it only."""
    if isinstance(value, Later):
        return value
    promise: Later[T] = Later()
    promise.complete(value)
    return promise
