"""A value that comes later: handlers return it when the response must wait for a commit, a flush or new data.

It is a future without an event loop: completing it calls the waiter at once, in the same thread.

An unexpected exception of what `map` or `and_then` calls goes to whoever completes the promise, which decides what it
means: for own work it stops the node, and a request is ended by `runtime/internal_errors.complete_alone`, with
`unanswered_by`. A MalformedData as a value ends a request: it is passed on, and no further step is called with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from moldau.base.errors import KafkaError, MalformedData

T = TypeVar("T")
U = TypeVar("U")
_PENDING = object()
_UNANSWERED = "_unanswered"


class Promise(Generic[T]):
    __slots__ = ("_value", "_waiter")

    def __init__(self) -> None:
        self._value: Any = _PENDING
        self._waiter: Callable[[T], None] | None = None

    @property
    def done(self) -> bool:
        return self._value is not _PENDING

    def value(self) -> T:
        value: T = self._value
        assert value is not _PENDING, "read before it was completed"
        return value

    def complete(self, value: T) -> None:
        assert self._value is _PENDING, "completed twice"
        self._value = value
        waiter = self._waiter
        if waiter is not None:
            # The waiter often refers to the promise. Break the cycle; don't leave it to the garbage collector.
            self._waiter = _already_called
            waiter(value)

    def then(self, waiter: Callable[[T], None]) -> None:
        """Call `waiter` with the value, at once if it is there already. Only one waiter is allowed."""
        assert self._waiter is None, "two waiters"
        if self._value is _PENDING:
            self._waiter = waiter
        else:
            self._waiter = _already_called
            waiter(self._value)

    def map(self, change: Callable[[T], U]) -> Promise[U]:
        """Return a promise of `change(value)`."""
        changed: Promise[U] = Promise()

        def on_value(value: T) -> None:
            if isinstance(value, MalformedData):
                changed.complete(cast(U, value))
                return
            try:
                result = change(value)
            except Exception as fault:
                _leave_unanswered(changed, fault)
                raise
            changed.complete(result)

        self.then(on_value)
        return changed

    def and_then(self, next_step: Callable[[T], U | Promise[U]]) -> Promise[U]:
        """Return a promise of the result of `next_step(value)`, which may be a promise itself. If `next_step` raises a
        KafkaError, that error becomes the value: whoever writes the response turns it into an error code."""
        promise: Promise[U] = Promise()

        def on_value(value: T) -> None:
            if isinstance(value, MalformedData):
                promise.complete(cast(U, value))
                return
            try:
                result = next_step(value)
            except KafkaError as error:
                # As a value it needs no traceback, whose frames would refer to it: break the reference cycle.
                result = cast(U, error.with_traceback(None))
            except Exception as fault:
                _leave_unanswered(promise, fault)
                raise
            if isinstance(result, Promise):
                result.then(promise.complete)
            else:
                promise.complete(result)

        self.then(on_value)
        return promise


def _already_called(_: object) -> None:
    """Replaces a waiter that has been called."""


def _leave_unanswered(promise: Promise[Any], fault: Exception) -> None:
    vars(fault)[_UNANSWERED] = promise


def unanswered_by(fault: Exception) -> Promise[Any] | None:
    """Return the promise that was not completed because of this exception, if there is one."""
    promise: Promise[Any] | None = vars(fault).pop(_UNANSWERED, None)
    return promise


def when_ready(value: T | Promise[T], next_step: Callable[[T], U | Promise[U]]) -> U | Promise[U]:
    """Return `next_step(value)` for a plain value, where a KafkaError is raised; for a promise, `and_then`."""
    return value.and_then(next_step) if isinstance(value, Promise) else next_step(value)


def resolved(value: T | Promise[T]) -> Promise[T]:
    """Wrap a plain value in a completed promise; return a promise, completed or not, as it is."""
    if isinstance(value, Promise):
        return value
    promise: Promise[T] = Promise()
    promise.complete(value)
    return promise
