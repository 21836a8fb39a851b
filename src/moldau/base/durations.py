"""Durations as Java writes and parses them: ISO 8601 with days, hours, minutes and seconds, such as `P1DT2H30M`."""

from __future__ import annotations

import re
from typing import Final

from moldau.base.limits import INT64_MAX

SECOND_NS: Final = 10**9
_DURATION: Final = re.compile(
    r"([+-]?)P(?:([+-]?[0-9]+)D)?(T(?:([+-]?[0-9]+)H)?(?:([+-]?[0-9]+)M)?(?:([+-]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)


def duration_ns(text: str) -> int:
    """Return a duration in nanoseconds; it may be negative. Raise ValueError if Java cannot parse it."""
    match = _DURATION.fullmatch(text)
    if match is None or (match[3] or "").upper() == "T" or (match[2] is None and match[3] is None):
        raise ValueError(f"{text!r} is no duration; expected PnDTnHnMn.nS")
    days, hours, minutes, seconds = (int(match[group_number] or 0) for group_number in (2, 4, 5, 6))
    nanoseconds = int((match[7] or "").ljust(9, "0"))
    if (match[6] or "").startswith("-"):
        nanoseconds = -nanoseconds
    total = (days * 86_400 + hours * 3600 + minutes * 60 + seconds) * SECOND_NS + nanoseconds
    if abs(total) // SECOND_NS > INT64_MAX:
        raise ValueError("the duration has more seconds than 64 bits can hold")
    return -total if match[1] == "-" else total
