"""How long the first records that groups have not read have been waiting.

The age is interpolated from the log ends that the collector saw. Where a group was behind already when the collector
saw the partition first, that is the least possible age, unless somebody has looked up when the record was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any, Final, NamedTuple

from moldau.base.clock import MonotonicMs
from moldau.metrics.lag_history import LagHistory, Place
from moldau.operations.lag import PartitionLag

NOTE_EVERY_MS: Final = 1_000
NOTES: Final = 150_000
"""Numbers that the history may keep in all."""
WRITTEN_MAX: Final = 10_000
"""Records whose time of writing is kept; those that were looked up first are forgotten first."""


class Age(NamedTuple):
    seconds: float
    is_least: bool
    """Whether the record may be older."""


NO_AGE: Final = Age(0.0, False)
"""Where everything is read."""


def oldest(ages: Iterable[Age | None]) -> Age | None:
    """Return the greatest age of those that are known. Another one may be greater if it is only a least age."""
    known = [each for each in ages if each is not None]
    return Age(max(each.seconds for each in known), any(each.is_least for each in known)) if known else None


def age_data(age: Age | None) -> dict[str, Any]:
    """Return the fields of an answer that tell an age."""
    return {
        "lag_seconds": None if age is None else age.seconds,
        "lag_seconds_at_least": age is not None and age.is_least,
    }


class Ages:
    """The collector's thread notes log ends; those that answer requests ask, and note what they have looked up."""

    def __init__(self) -> None:
        self._history = LagHistory()
        self._noted: MonotonicMs | None = None
        self._written: dict[tuple[Place, int], MonotonicMs] = {}
        self._lock = Lock()
        """Guards changes of `_written`."""

    def is_due(self, now: MonotonicMs) -> bool:
        return self._noted is None or now - self._noted >= NOTE_EVERY_MS

    def note_ends(self, ends: Mapping[Place, int], now: MonotonicMs) -> None:
        """Note the log ends of all partitions that groups read; -1 if one is unknown."""
        self._history.notes_max = max(4, min(64, NOTES // max(1, len(ends))))
        self._history.note(ends, now)
        self._noted = now

    def note_looked_up(self, lags: Iterable[PartitionLag], now: MonotonicMs) -> None:
        """Remember the ages of records that were read to know them."""
        with self._lock:
            for partition, committed, _, seconds, is_least in lags:
                if committed is not None and seconds and not is_least:
                    self._written.pop((partition, committed), None)
                    self._written[partition, committed] = MonotonicMs(now - round(seconds * 1000))
            while len(self._written) > WRITTEN_MAX:
                del self._written[next(iter(self._written))]

    def age(self, place: Place, committed: int, now: MonotonicMs) -> Age:
        """Return the age of the first record at or after the offset; there is one."""
        age_ms, is_least = self.age_ms(place, committed, now)
        return Age(age_ms / 1000, is_least)

    def age_ms(self, place: Place, committed: int, now: MonotonicMs) -> tuple[int, bool]:
        """Like `age`, without a value for each of many partitions."""
        age_ms, is_least = self._history.age_ms(place, committed, now)
        if is_least and self._written:
            written = self._written.get((place, committed))
            if written is not None:
                return max(0, now - written), False
        return age_ms, is_least
