"""Fetches that wait for data: woken when enough has come, when the client's time is up, or when the server stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from moldau.base.clock import Timer, Timers
from moldau.base.promise import Promise
from moldau.replica.sessions import CONSUMER, FetchSession

R = TypeVar("R")
Collect = Callable[[bool], R | None]
"""Tries to answer; told True, it must."""
Missing = Callable[[], int]
"""How many bytes the last try fell short of."""


class ParkedFetches(Generic[R]):
    """All fetches that wait, so that none is left without an answer when the server stops."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._parked: dict[_ParkedFetch[R], None] = {}
        self._is_releasing = False

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, session: FetchSession, missing: Missing, max_wait_ms: int, collect: Collect[R]) -> Promise[R]:
        fetch = _ParkedFetch(session, missing, collect, self._timers, self._parked.pop)
        self._parked[fetch] = None
        fetch.timer = self._timers.after_ms(max_wait_ms, fetch.time_is_up)
        return fetch.answer

    def release_all(self) -> None:
        for fetch in list(self._parked):
            fetch.time_is_up()

    def release_followers(self) -> None:
        """Soon, and once for all who ask for it in this turn."""
        if not self._is_releasing:
            self._is_releasing = True
            self._timers.soon(self._release_followers)

    def _release_followers(self) -> None:
        self._is_releasing = False
        for fetch in [each for each in self._parked if each.is_of_follower]:
            fetch.time_is_up()


class _ParkedFetch(Generic[R]):
    """One waiting fetch. Data that comes while it waits is counted; only enough of it makes it look again."""

    __slots__ = (
        "_collect",
        "_done",
        "_is_woken",
        "_missing",
        "_missing_bytes",
        "_session",
        "_timers",
        "answer",
        "timer",
    )

    def __init__(
        self,
        session: FetchSession,
        missing: Missing,
        collect: Collect[R],
        timers: Timers,
        done: Callable[[_ParkedFetch[R]], object],
    ) -> None:
        self._session = session
        self._missing = missing
        self._missing_bytes = missing()
        self._collect = collect
        self._timers = timers
        self._done = done
        self._is_woken = False
        self.answer: Promise[R] = Promise()
        self.timer: Timer | None = None
        session.on_touch = self._touched
        if not session.id:
            session.watch_all()

    @property
    def is_of_follower(self) -> bool:
        return self._session.replica_id != CONSUMER

    def _touched(self, size: int) -> None:
        """New data, or with size 0 another change that may end the waiting."""
        self._missing_bytes -= size
        if not self._is_woken and (size == 0 or self._missing_bytes <= 0):
            self._is_woken = True
            self._timers.soon(self._look)

    def _look(self) -> None:
        self._is_woken = False
        if self.answer.done:
            return
        found = self._collect(False)
        if found is not None:
            self._finish(found)
        else:
            # What has come may be more or less than what can be read of it.
            self._missing_bytes = self._missing()

    def time_is_up(self) -> None:
        if not self.answer.done:
            found = self._collect(True)
            assert found is not None, "there is no more time"
            self._finish(found)

    def _finish(self, found: R) -> None:
        self._done(self)
        if self.timer is not None:
            self.timer.cancel()
        self._session.on_touch = None
        if not self._session.id:
            self._session.close()
        self.answer.complete(found)
