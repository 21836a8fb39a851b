"""Dates in the letters of Java's SimpleDateFormat, as `yyyy-MM-dd HH:mm:ss:SSS`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

NUMBERS: Final[dict[str, Callable[[datetime], int]]] = {
    "y": lambda when: when.year,
    "M": lambda when: when.month,
    "D": lambda when: when.timetuple().tm_yday,
    "d": lambda when: when.day,
    "u": lambda when: when.isoweekday(),
    "H": lambda when: when.hour,
    "k": lambda when: when.hour or 24,
    "K": lambda when: when.hour % 12,
    "h": lambda when: when.hour % 12 or 12,
    "m": lambda when: when.minute,
    "s": lambda when: when.second,
    "S": lambda when: when.microsecond // 1000,
}
"""The letters of numbers, which have at least as many digits as the format has letters."""
TEXTS: Final = {"M": ("%b", "%B"), "E": ("%a", "%A"), "a": ("%p", "%p"), "z": ("%Z", "%Z"), "Z": ("%z", "%z")}
"""The letters of texts, with strftime's directives of the short form and of the long one, from four letters on."""
_PARTS: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|'")


def java_date(when: datetime, java_format: str) -> str:
    """Format a date. Quoted text is copied, and two quotes are one. Raise ValueError for an unknown letter or a single
    quote; the letters of weeks, eras and ISO time zones are not supported."""

    def part(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1].replace("''", "'") or "'"
        if match[2] is None:
            raise ValueError("Unterminated quote")
        letter, count = match[2], len(match[0])
        if letter in TEXTS and (letter != "M" or count >= 3):
            return when.strftime(TEXTS[letter][count >= 4])
        if letter not in NUMBERS:
            raise ValueError(f"Illegal pattern character '{letter}'")
        if letter == "y" and count == 2:
            return f"{when.year % 100:02}"
        return f"{NUMBERS[letter](when):0{count}}"

    return _PARTS.sub(part, java_format)
