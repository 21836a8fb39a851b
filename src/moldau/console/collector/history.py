"""How numbers changed over time: the last minutes exactly, all the time before them in ever larger steps.

All series share their times. A series that was never anything but zero takes no memory, nor does one of a kind of which
nothing is known.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from moldau.base.clock import WallMs

EVERY_MS: Final = 5_000
LONG_EVERY_MS: Final = 60_000
POINTS_MAX: Final = 120
POINTS_MANY_SERIES: Final = 20
MANY_SERIES: Final = 3_000
GONE_MAX: Final = 100
"""Series of things that are gone are dropped when there are more than this and a quarter of all."""

Key = tuple[str, str]
"""What is measured, and of which thing: ("lag", "billing")."""
Values = Mapping[str, Mapping[str, float | None]]
"""By what is measured and of which thing; None if it is unknown."""


class _Table:
    """Rows of values, one for each time. A series is a column: 33,000 series cost four bytes each in a row."""

    def __init__(self) -> None:
        self.times: list[WallMs] = []
        self._rows: list[array[float]] = []
        self._unknown: list[frozenset[str]] = []
        """The kinds of which nothing was known, for each row."""
        self._columns: dict[str, dict[str, int]] = {}
        """By kind and thing. A key of both would take more memory than the values."""

    @property
    def width(self) -> int:
        return sum(map(len, self._columns.values()))

    def note(self, values: Values, now_ms: WallMs) -> None:
        known = {kind for kind, of_kind in values.items() if any(value is not None for value in of_kind.values())}
        width = self.width
        for kind, of_kind in values.items():
            columns = self._columns.setdefault(kind, {})
            for name, value in of_kind.items():
                if name not in columns and (value or (value is None and kind in known)):
                    columns[name] = width
                    width += 1
        row = array("f", [math.nan]) * width
        for kind, columns in self._columns.items():
            of_kind = values.get(kind, {})
            for name, column in columns.items():
                value = of_kind.get(name)
                if value is not None:
                    row[column] = value
        self.times.append(now_ms)
        self._rows.append(row)
        self._unknown.append(frozenset(values) - known)

    def drop_first(self, count: int) -> None:
        del self.times[:count]
        del self._rows[:count]
        del self._unknown[:count]

    def drop_from(self, now_ms: WallMs) -> None:
        """Drop the rows from this time on, which are there if the clock was set back: times only grow."""
        keep = bisect_left(self.times, now_ms)
        del self.times[keep:]
        del self._rows[keep:]
        del self._unknown[keep:]

    def thin(self) -> None:
        """Drop every second row."""
        self.times, self._rows, self._unknown = self.times[1::2], self._rows[1::2], self._unknown[1::2]

    def drop_gone(self, values: Values) -> None:
        """Drop the series of what is gone, if they are many."""
        kept = sum(name in values.get(kind, ()) for kind, columns in self._columns.items() for name in columns)
        if self.width - kept <= GONE_MAX + kept // 4:
            return
        places = sorted(
            (column, kind, name)
            for kind, columns in self._columns.items()
            for name, column in columns.items()
            if name in values.get(kind, ())
        )
        self._columns = {}
        for column, (_, kind, name) in enumerate(places):
            self._columns.setdefault(kind, {})[name] = column
        # Columns keep their order, so that a row still ends before the series that came after it.
        self._rows = [array("f", [row[old] for old, _, _ in places if old < len(row)]) for row in self._rows]

    def points(self, key: Key, begin: int, end: int) -> list[float | None]:
        """Return the points from `begin` on, before `end`. A series was zero before it was noted for the first time,
        unless nothing of its kind was known."""
        column = self._columns.get(key[0], {}).get(key[1])
        points: list[float | None] = []
        for row, unknown in zip(self._rows[begin:end], self._unknown[begin:end], strict=True):
            if column is not None and column < len(row):
                points.append(_point(row[column]))
            else:
                points.append(None if key[0] in unknown else 0.0)
        return points


class History:
    """One thread notes, others read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent, self._long = _Table(), _Table()
        self._long_every_ms = LONG_EVERY_MS

    def is_due(self, now_ms: WallMs) -> bool:
        """Whether the last note is old enough; also if the clock was set back since."""
        return not self._recent.times or not 0 <= now_ms - self._recent.times[-1] < EVERY_MS

    def note(self, values: Values, now_ms: WallMs) -> None:
        """Note all series at once; one that is missing here is unknown at this time."""
        with self._lock:
            self._note(values, now_ms)

    def _note(self, values: Values, now_ms: WallMs) -> None:
        points_max = POINTS_MAX if self._recent.width < MANY_SERIES else POINTS_MANY_SERIES
        self._recent.drop_from(now_ms)
        self._long.drop_from(now_ms)
        self._recent.note(values, now_ms)
        excess = len(self._recent.times) - points_max
        if excess > 0:
            self._recent.drop_first(excess)
        self._recent.drop_gone(values)
        if not self._long.times or now_ms - self._long.times[-1] >= self._long_every_ms:
            self._long.note(values, now_ms)
            if len(self._long.times) > points_max:
                self._long.thin()
                self._long_every_ms *= 2
            self._long.drop_gone(values)

    def times_ms(self) -> list[WallMs]:
        with self._lock:
            return [*self._long.times[: self._older()], *self._recent.times]

    def values(self, key: Key) -> list[float | None]:
        """Return the points of a series, as many as there are times; None where it is unknown."""
        with self._lock:
            recent = self._recent.points(key, 0, len(self._recent.times))
            return [*self._long.points(key, 0, self._older()), *recent]

    def last(self, key: Key, count: int) -> list[float | None]:
        with self._lock:
            length = len(self._recent.times)
            return self._recent.points(key, max(0, length - count), length)

    def _older(self) -> int:
        """Return how many of the long times are before the recent ones."""
        return bisect_left(self._long.times, self._recent.times[0]) if self._recent.times else 0


def _point(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
