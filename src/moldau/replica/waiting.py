"""Fetches that wait for data: until there is enough, the client's max wait is over, or the server stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from moldau.base.clock import Timer, Timers
from moldau.base.long_work import LongWork, Soon, begin
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.turns import CALLS_A_TURN
from moldau.replica.sessions import CONSUMER, FetchSession

R = TypeVar("R")
Collect = Callable[[bool], Steps[R | None]]
"""Returns the response, or None if there is not enough data yet; a turn of the loop ends at each `yield`. With True it
must return a response."""
Missing = Callable[[], int]
"""Returns how many bytes the last attempt lacked."""


class ParkedFetches(Generic[R]):
    """All waiting fetches, so that each gets a response when the server stops."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self._parked: dict[_ParkedFetch[R], None] = {}
        self._is_releasing = False
        self._woken: deque[_ParkedFetch[R]] = deque()
        self._is_trying = False
        """Whether woken fetches will look at the log again."""

    def __len__(self) -> int:
        return len(self._parked)

    def park(
        self,
        session: FetchSession,
        missing: Missing,
        max_wait_ms: int,
        collect: Collect[R],
        failed: Callable[[Exception], R],
    ) -> Promise[R]:
        """`failed` returns what a client gets if `collect` fails."""
        fetch = _ParkedFetch(session, missing, collect, failed, self.timers.soon, self._wake, self._parked.pop)
        self._parked[fetch] = None
        fetch.timer = self.timers.after_ms(max_wait_ms, fetch.expire)
        return fetch.response

    def _wake(self, fetch: _ParkedFetch[R]) -> None:
        self._woken.append(fetch)
        if not self._is_trying:
            self._is_trying = True
            self.timers.soon(self._try_some)

    def _try_some(self) -> None:
        """Let the next woken fetches look at the log again."""
        for _ in range(min(len(self._woken), CALLS_A_TURN)):
            self._woken.popleft().try_again()
        self._is_trying = bool(self._woken)
        if self._woken:
            self.timers.soon(self._try_some)

    def release_all(self) -> None:
        for fetch in list(self._parked):
            fetch.expire()

    def release_followers(self) -> None:
        """Release followers' fetches soon, once for all calls in this turn of the event loop."""
        if not self._is_releasing:
            self._is_releasing = True
            self.timers.soon(self._release_followers)

    def _release_followers(self) -> None:
        self._is_releasing = False
        for fetch in [each for each in self._parked if each.is_of_follower]:
            fetch.expire()


class _ParkedFetch(Generic[R]):
    """One waiting fetch. It counts new bytes, and looks at the log again only if there are enough."""

    __slots__ = (
        "_collect",
        "_collecting",
        "_done",
        "_failed",
        "_is_expired",
        "_is_woken",
        "_missing",
        "_missing_bytes",
        "_session",
        "_soon",
        "_wake",
        "response",
        "timer",
    )

    def __init__(
        self,
        session: FetchSession,
        missing: Missing,
        collect: Collect[R],
        failed: Callable[[Exception], R],
        soon: Soon,
        wake: Callable[[_ParkedFetch[R]], None],
        done: Callable[[_ParkedFetch[R]], object],
    ) -> None:
        self._session = session
        self._missing = missing
        self._missing_bytes = missing()
        self._collect = collect
        self._failed = failed
        self._soon = soon
        self._wake = wake
        self._done = done
        self._is_woken = False
        self._collecting: LongWork[R | None] | None = None
        self._is_expired = False
        self.response: Promise[R] = Promise()
        self.timer: Timer | None = None
        session.on_touch = self._on_touch
        if not session.id:
            session.watch_all()

    @property
    def is_of_follower(self) -> bool:
        return self._session.replica_id != CONSUMER

    def _on_touch(self, size: int) -> None:
        """Count new data; with size 0 another change may end the wait."""
        self._missing_bytes -= size
        if not self._is_woken and (size == 0 or self._missing_bytes <= 0):
            self._is_woken = True
            self._wake(self)

    def try_again(self) -> None:
        if self._is_collecting:
            return  # `_on_collected` tries again
        self._is_woken = False
        if not self.response.done:
            self._begin_collecting()

    def expire(self) -> None:
        self._is_expired = True
        if not self.response.done and not self._is_collecting:
            self._begin_collecting()

    @property
    def _is_collecting(self) -> bool:
        return self._collecting is not None and self._collecting.is_running

    def _begin_collecting(self) -> None:
        work = begin(self._soon, self._collect(self._is_expired), self._on_collected, self._on_fault)
        if work is not None:
            self._collecting = work

    def _on_fault(self, fault: Exception) -> None:
        reply = self._failed(fault)
        if not self.response.done:
            self._finish(reply)

    def _on_collected(self, result: R | None) -> None:
        if result is not None:
            self._finish(result)
            return
        # The bytes that can be read may be more or fewer than those counted.
        self._missing_bytes = self._missing()
        if self._is_expired or self._is_woken:  # while it collected in several turns
            self.try_again()

    def _finish(self, result: R) -> None:
        self._done(self)
        if self.timer is not None:
            self.timer.cancel()
        self._session.on_touch = None
        if not self._session.id:
            self._session.close()
        self.response.complete(result)
