"""Parses durations and times of a pipeline file into the forms that Spark needs.

`10 seconds`, `10s`, `1 hour 30 minutes` become Spark's interval text; ISO 8601 becomes a datetime with a zone.
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
"""A year: a longer delay or trigger is a typing error, and Spark would keep its state practically forever."""


def parse_duration(text: str) -> str | None:
    """Return the duration in Spark's notation ("90 seconds"), or None if the text is not a duration."""
    milliseconds = duration_ms(text)
    if milliseconds is None:
        return None
    for unit in ("week", "day", "hour", "minute", "second"):
        if milliseconds and milliseconds % _UNITS[unit] == 0:
            return _with_unit(milliseconds // _UNITS[unit], unit)
    return _with_unit(milliseconds, "millisecond") if milliseconds else "0 seconds"


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration, or None if the text is none."""
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


def _with_unit(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def parse_time(text: str) -> datetime | None:
    """Return an ISO 8601 date or time, or None. Without a zone it is UTC, like all times in a pipeline."""
    try:
        parsed = datetime.fromisoformat(text.strip())
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except ValueError:
        return None
