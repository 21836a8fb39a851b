"""Durations and moments as people write them in a pipeline file, and as Spark wants them.

`10 seconds`, `10s`, `1 hour 30 minutes` become Spark's interval text; ISO 8601 becomes a datetime with a zone.
Parsing only: what a duration is for is known elsewhere.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNITS = {
    "millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_SHORT = {
    "ms": "millisecond", "msec": "millisecond", "s": "second", "sec": "second", "m": "minute", "min": "minute",
    "h": "hour", "hr": "hour", "d": "day", "w": "week",
}  # fmt: skip
_PART = re.compile(r"\s*(\d{1,12})\s*([a-z]+)\s*,?")
DURATION_MS_MAX = 366 * 86_400_000
"""A year: a longer delay or trigger is a slip of the hand, and its state would never be let go of."""


def duration(text: str) -> str | None:
    """The duration as Spark reads it ("90 seconds"), or None if it is none."""
    milliseconds = duration_ms(text)
    if milliseconds is None:
        return None
    for unit in ("week", "day", "hour", "minute", "second"):
        if milliseconds and milliseconds % _UNITS[unit] == 0:
            return _counted(milliseconds // _UNITS[unit], unit)
    return _counted(milliseconds, "millisecond") if milliseconds else "0 seconds"


def duration_ms(text: str) -> int | None:
    rest = text.strip().lower().removeprefix("interval ")
    at = total = 0
    while at < len(rest):
        part = _PART.match(rest, at)
        unit = _unit(part.group(2)) if part else None
        if part is None or unit is None:
            return None
        total += int(part.group(1)) * _UNITS[unit]
        at = part.end()
    return total if rest and total <= DURATION_MS_MAX else None


def _unit(word: str) -> str | None:
    if word in _SHORT:
        return _SHORT[word]
    singular = word.removesuffix("s")
    return singular if singular in _UNITS else _SHORT.get(singular)


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def moment(text: str) -> datetime | None:
    """An ISO 8601 date or time, or None. One without a zone is UTC, as everything in a pipeline."""
    try:
        found = datetime.fromisoformat(text.strip())
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        return None
