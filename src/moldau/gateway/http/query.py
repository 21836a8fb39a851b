"""The query of a request: its parameters, each at most once, and the kinds of them that several requests have."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from urllib.parse import parse_qsl

from moldau.gateway.http.limits import QUERY_LENGTH_MAX
from moldau.web.failures import ApiError, bad_request

PARAMETERS_MAX: Final = 20
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: nothing can write later times as dates."""
_PARTITION: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_MILLISECONDS: Final = re.compile(r"[0-9]{1,15}", re.ASCII)


def parameters(query: bytes, known: tuple[str, ...]) -> dict[str, str]:
    """Return the parameters. ApiError for one that is unknown or given twice."""
    if len(query) > QUERY_LENGTH_MAX:
        raise ApiError(414, "BAD_REQUEST", f"the query has more than {QUERY_LENGTH_MAX} characters")
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except (ValueError, UnicodeDecodeError):
        raise bad_request("the query cannot be read: it is not UTF-8, or has too many parameters") from None
    given = dict(pairs)
    for name in given:
        if name not in known:
            raise bad_request(f"unknown parameter {name[:40]!r}; known are {', '.join(known)}")
    if len(given) < len(pairs):
        raise bad_request("a parameter is given twice")
    return given


def partition_number(text: str | None) -> int | None:
    if text is None:
        return None
    if not _PARTITION.fullmatch(text):
        raise bad_request(f"partition {text[:20]!r} is not a number from 0 on")
    return int(text)


def timestamp_ms(text: str) -> int:
    """Return a time, given in milliseconds since 1970 or as 2026-11-19T08:00:00Z. One without a zone is refused."""
    if _MILLISECONDS.fullmatch(text):
        return _before_10000(text, int(text))
    try:
        time = datetime.fromisoformat(text.replace(" ", "+"))  # a + in a query is a space
    except ValueError:
        raise bad_request(f"{text[:40]!r} is not a time: expected milliseconds or 2026-11-19T08:00:00Z") from None
    if time.tzinfo is None or time.timestamp() < 0:
        raise bad_request(f"{text[:40]!r} has no time zone or is before 1970: write 2026-11-19T08:00:00Z")
    return _before_10000(text, round(time.timestamp() * 1000))


def _before_10000(text: str, time_ms: int) -> int:
    if time_ms > LAST_MS:
        raise bad_request(f"{text[:40]!r} is later than the year 9999: expected milliseconds since 1970")
    return time_ms
