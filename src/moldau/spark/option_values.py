"""Parses the text of one option. Pure.

A wrong text raises ValueError with the option's name, what is allowed, an example, and the wrong text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from moldau.base.limits import INT32_MAX, INT64_MAX

SHOWN_MAX: Final = 60
COMPRESSION_LEVELS: Final = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
GZIP_DEFAULT: Final = ("gzip", -1)
UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
SYNONYMS: Final = {
    **dict.fromkeys(["yes", "y", "on", "1", "t"], "true"),
    **dict.fromkeys(["no", "n", "off", "0", "f"], "false"),
    **dict.fromkeys(["begin", "beginning", "start", "first", "oldest", "smallest"], "earliest"),
    **dict.fromkeys(["end", "last", "newest", "now", "largest"], "latest"),
}
"""Other words that people use, and the option's word for them."""


def wrong(name: str, allowed: str, text: str, hint: str = "") -> ValueError:
    return ValueError(f"{name} is {allowed}, not {shown(text)}{hint}")


def shown(text: str) -> str:
    cut = text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
    return cut if cut.strip() else repr(cut)


def did_you_mean(text: str, names: Iterable[str], synonyms: Mapping[str, str] = SYNONYMS) -> str:
    """Return the end of an error message with the name that was probably meant, or an empty text."""
    by_lower = {name.lower(): name for name in names}
    word = text.strip().lower()
    near = [synonyms[word]] if synonyms.get(word) in by_lower else difflib.get_close_matches(word, by_lower, 1)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    value = text.strip().lower()
    if value not in allowed:
        listed = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        raise wrong(name, listed, text, did_you_mean(text, allowed))
    return value


def boolean(name: str, text: str) -> bool:
    return choice(name, text, ("true", "false")) == "true"


def natural(name: str, text: str) -> int:
    return _number(name, text, "a whole number of at least 0, such as 3", lowest=0)


def positive(name: str, text: str) -> int:
    return _number(name, text, "a whole number above 0, such as 1000", lowest=1)


def positive_int32(name: str, text: str) -> int:
    """Parse a number that Kafka's clients take as a Java int, and that requests have as such."""
    number = positive(name, text)
    if number > INT32_MAX:
        raise wrong(name, f"a whole number from 1 to {INT32_MAX}", text)
    return number


def integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise wrong(name, "a whole number such as 3", text) from None


def compression_level(codec: str) -> Callable[[str, str], int]:
    """Return the parser of a codec's level, which has the bounds that Kafka's producers have."""
    lowest, highest = COMPRESSION_LEVELS.get(codec, (-INT32_MAX, INT32_MAX))

    def parse(name: str, text: str) -> int:
        level = integer(name, text)
        if not lowest <= level <= highest and (codec, level) != GZIP_DEFAULT:
            raise wrong(name, f"a whole number from {lowest} to {highest}", text)
        return level

    return parse


def _number(name: str, text: str, allowed: str, lowest: int) -> int:
    if not text.strip().isdecimal() or not lowest <= int(text) <= INT64_MAX:
        raise wrong(name, allowed, text)
    return int(text)


def timestamp_ms(name: str, text: str) -> int:
    """Parse a Kafka timestamp: milliseconds since the epoch."""
    if not text.strip().isdecimal() or int(text) > INT64_MAX:
        raise wrong(name, "a time in milliseconds since 1970, such as 1767225600000", text, _as_milliseconds(text))
    return int(text)


def _as_milliseconds(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return ""
    in_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return f"; did you mean {int(in_zone.timestamp() * 1000)}?"


def duration_ms(name: str, text: str) -> int:
    """Spark's short durations: `15m`, `5min`, `30s`, `500ms`, `1h`, `2d`; a bare number is milliseconds."""
    match = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*", text.lower())
    if match is None:
        raise wrong(name, "a duration such as 500ms, 30s, 15m or 1h", text)
    return int(match[1]) * UNIT_MS[match[2] or "ms"]
