"""Decides who may send to a backend when: the rate, the pauses before another attempt, the circuit. No clock, no I/O.

    closed --failures in a row--> open --pause--> one trial --success--> closed
                                    ^------------failure------|

Senders ask `permission` before each write and report `succeeded` or `failed`. The circuit opens after FAILURES_TO_OPEN
failures in a row, if they concern several rows or the backend is Away: one row that always fails says nothing about
others. It opens at once if the backend asks for a long pause. While it is open, nobody sends but one sender at a time
as a trial, and attempts do not count against a row. Time and chance are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Final

from moldau.backends.interface import Away, Retry

PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 60.0
ASKED_PAUSE_S_MAX: Final = 3_600.0
"""A backend that asks for a longer pause is asked again after an hour."""
LONG_PAUSE_S: Final = 5.0
FAILURES_TO_OPEN: Final = 5
BURST_S: Final = 0.05
"""How much of the rate may be made up for after a moment in which nobody sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    rate: float | None = None
    """Rows a second."""
    retries: int = 10
    """How often a row is tried again while the backend takes others."""
    retry_for_s: float | None = None
    """How long a backend may be away; None: for ever."""


@dataclass(frozen=True, slots=True)
class Go:
    """Send now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again when so much time has passed, or when another sender has reported something."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not try this any more."""

    reason: str
    is_outage: bool
    """The backend is away for too long, rather than the row bad."""


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after the pause."""

    seconds: float
    counts: bool
    """Whether the attempt counts against the row."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Why nobody sends."""

    since_s: float
    reason: str


Permission = Go | Wait | GiveUp
GO: Final = Go()


def pause_s(attempt: int, chance: float, asked_s: float | None = None) -> float:
    """Return the pause after the failed attempt of this number, from 1. It doubles up to a maximum, and half of it is
    chance, so that senders that failed together do not come back together. It is at least what was asked for."""
    whole = min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(attempt - 1, 30))
    return max(whole * (0.5 + chance / 2), min(asked_s or 0.0, ASKED_PAUSE_S_MAX))


@dataclass(slots=True)
class Traffic:
    """All senders of one backend in one process."""

    limits: Limits
    chance: Callable[[], float]
    """Returns a number in [0, 1)."""
    outage: Outage | None = None
    """Set while the circuit is open."""
    _streak: int = 0
    """Failures since the last success."""
    _streak_since_s: float = 0.0
    _streak_keys: set[str] = field(default_factory=set)
    """The rows that failed in it; two are enough to know."""
    _try_at_s: float = 0.0
    _trials: int = 0
    """Failed trials of this outage."""
    _trial_of: int | None = None
    """The sender whose trial is under way."""
    _last_trial_of: int | None = None
    free_at_s: float = 0.0
    """When the rate allows the next row. Of the Traffic of the micro-batch before, so that the rate goes on."""

    def permission(self, sender: int, rows: int, now_s: float, others_wait: bool = False) -> Permission:
        """Return whether the sender may send now. `others_wait`: they get the next trial."""
        if self.outage is not None:
            return self._during_outage(self.outage, sender, now_s, others_wait)
        if now_s < self._try_at_s:
            return Wait(self._try_at_s - now_s)
        return self._by_rate(rows, now_s)

    def succeeded(self) -> None:
        """Note that the backend took or refused something: it is there."""
        self.outage, self._trial_of, self._last_trial_of = None, None, None
        self._streak = self._trials = 0
        self._streak_keys.clear()
        self._try_at_s = 0.0

    def failed(
        self, sender: int, keys: Set[str], attempt: int, since_s: float, error: Retry, now_s: float
    ) -> Again | GiveUp:
        """Note a failed attempt of rows, which failed first at `since_s`; return what becomes of them. Of many rows the
        keys of two are enough."""
        was_open = self.outage is not None
        self._add_failure(keys, now_s)
        if was_open:
            self._fail_trial(sender, error, now_s)
        elif self._streak >= FAILURES_TO_OPEN and (isinstance(error, Away) or len(self._streak_keys) > 1):
            self._open(error, now_s)
        elif isinstance(error, Away) and error.after_s:
            self._hold(error, error.after_s, now_s)
        counts = self.outage is None and not isinstance(error, Away)
        if self._is_over(since_s, now_s):
            is_outage = self.outage is not None or isinstance(error, Away)
            return GiveUp(f"{error} (for {now_s - since_s:.0f} s)", is_outage)
        if counts and attempt > self.limits.retries:
            return GiveUp(f"{error} (after {attempt} attempts)", is_outage=False)
        if self.outage is not None:
            return Again(0.0, counts)
        return Again(pause_s(attempt, self.chance(), error.after_s), counts)

    # --- circuit ----------------------------------------------------------------------------------------------------

    def _during_outage(self, outage: Outage, sender: int, now_s: float, others_wait: bool) -> Permission:
        may_try = self._trial_of is None and not (others_wait and sender == self._last_trial_of)
        if may_try and now_s >= self._try_at_s:
            self._trial_of = sender
            return GO
        if self._is_over(outage.since_s, now_s):
            return GiveUp(f"{outage.reason} (for {now_s - outage.since_s:.0f} s)", is_outage=True)
        return Wait(self._try_at_s - now_s if now_s < self._try_at_s else PAUSE_S_MAX)

    def _add_failure(self, keys: Set[str], now_s: float) -> None:
        if not self._streak:
            self._streak_since_s = now_s
        self._streak += 1
        if len(self._streak_keys) < 2:
            self._streak_keys |= keys

    def _hold(self, error: Away, asked_s: float, now_s: float) -> None:
        """Do what the backend asks for: nobody sends for a while. A long while is an outage, so that users see it."""
        if asked_s >= LONG_PAUSE_S:
            self._open(error, now_s)
        else:
            self._try_at_s = max(self._try_at_s, now_s + asked_s)

    def _open(self, error: Retry, now_s: float) -> None:
        self.outage = Outage(self._streak_since_s, str(error))
        self._trials, self._trial_of = 1, None
        self._try_at_s = now_s + pause_s(self._trials, self.chance(), error.after_s)

    def _fail_trial(self, sender: int, error: Retry, now_s: float) -> None:
        """Wait longer. A sender that had sent before the circuit opened, and fails now, changes nothing."""
        assert self.outage is not None
        if self._trial_of != sender:
            return
        self.outage = Outage(self.outage.since_s, str(error))
        self._trials += 1
        self._trial_of, self._last_trial_of = None, sender
        self._try_at_s = now_s + pause_s(self._trials, self.chance(), error.after_s)

    def _is_over(self, since_s: float, now_s: float) -> bool:
        return self.limits.retry_for_s is not None and now_s - since_s >= self.limits.retry_for_s

    # --- rate -------------------------------------------------------------------------------------------------------

    def _by_rate(self, rows: int, now_s: float) -> Permission:
        if self.limits.rate is None:
            return GO
        if now_s < self.free_at_s:
            return Wait(self.free_at_s - now_s)
        self.free_at_s = max(self.free_at_s, now_s - BURST_S) + rows / self.limits.rate
        return GO
