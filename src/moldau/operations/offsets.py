"""Where reading begins and ends, as a person writes it: a grammar.

    start              the oldest record              end              only records yet to come
    N                  offset N on                    N1:N2            N1 on, before N2
    +N                 N after the oldest             -N               the last N
    :N                 the oldest on, before N        :end             the oldest on, up to the current end
    @T                 records from time T on         @T1:T2           from T1 on, before T2
    @:T                the oldest on, before T        A:end            from A on (as above), up to the current end

    T: 13 digits       milliseconds since 1970        10 digits        seconds since 1970
       2026-11-15      a day, UTC                     2026-11-15T08:30:00[.5][Z|+01:00]   a moment, UTC by default
       -1h             that long ago (d h m s ms)     1h               as T2: that long after T1

The end is exclusive. Everything here is pure: the current time is an argument, and offsets are resolved from the
bounds of a partition and, for times, from the broker's ListOffsets response.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from moldau.base.limits import OFFSET_MAX


class Anchor(Enum):
    """What a position is relative to."""

    OFFSET = "offset"
    AFTER_START = "after start"
    BEFORE_END = "before end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a partition; `value` is an offset, a distance from the anchor, or milliseconds since 1970."""

    anchor: Anchor
    value: int


START: Final = Position(Anchor.AFTER_START, 0)
END: Final = Position(Anchor.BEFORE_END, 0)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `begin` on, before `end`. If `end` is None, reading goes on with new records."""

    begin: Position
    end: Position | None = None

    @property
    def times(self) -> tuple[int, ...]:
        """The timestamps whose offsets a broker has to look up before the range can be resolved."""
        return tuple(
            position.value
            for position in (self.begin, self.end)
            if position is not None and position.anchor is Anchor.TIME
        )


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """A partition's log start and end, and by time the first offset at or after it, absent if all records are older."""

    start: int
    end: int
    at_time: dict[int, int]


class BadOffset(ValueError):
    """The text of an offset, a time or a duration does not follow the grammar. The message quotes the wrong part and
    shows what is allowed."""


_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION: Final = re.compile(r"(?:\d+(?:ms|[dhms]))+")
_DURATION_PART: Final = re.compile(r"(\d+)(ms|[dhms])")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?)?")
DIGITS_MAX: Final = len(str(OFFSET_MAX))
"""Checked before `int`, which raises ValueError above 4,300 digits."""


def parse_range(text: str, now_ms: int) -> OffsetRange:
    """Parse a range; raise BadOffset if it is wrong."""
    parsed = _parse_time_range(text[1:], now_ms) if text.startswith("@") else _parse_offset_range(text)
    if _runs_backwards(parsed):
        raise BadOffset(f"{text!r} ends before it begins")
    return parsed


def _runs_backwards(range_: OffsetRange) -> bool:
    """Compare two offsets or two times; other pairs cannot be compared without the partition's bounds."""
    begin, end = range_.begin, range_.end
    comparable = end is not None and begin.anchor is end.anchor and end.anchor in (Anchor.OFFSET, Anchor.TIME)
    return comparable and end is not None and end.value < begin.value


def parse_position(text: str, now_ms: int) -> Position:
    """Parse one position without an end: start, end, N, +N, -N or @T."""
    return parse_moment(text[1:], now_ms) if text.startswith("@") else _parse_offset_position(text)


def _parse_offset_range(text: str) -> OffsetRange:
    begin, colon, end = text.partition(":")
    if text == ":":
        raise BadOffset("':' has neither a beginning nor an end; `start` reads everything")
    return OffsetRange(
        _parse_offset_position(begin) if begin or not colon else START,
        _parse_offset_end(end) if end else None,
    )


def _parse_offset_position(text: str) -> Position:
    if text == "start":
        return START
    if text == "end":
        return END
    anchor = {"+": Anchor.AFTER_START, "-": Anchor.BEFORE_END}.get(text[:1], Anchor.OFFSET)
    return Position(anchor, _parse_number(text if anchor is Anchor.OFFSET else text[1:], text))


def _parse_offset_end(text: str) -> Position:
    return END if text == "end" else Position(Anchor.OFFSET, _parse_number(text, text))


def _parse_number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise BadOffset(f"{text!r} is not an offset; use start, end, N, +N, -N, N1:N2 or @TIME")
    if len(digits) > DIGITS_MAX or int(digits) > OFFSET_MAX:
        raise BadOffset(f"{text!r} is larger than any offset")
    return int(digits)


def _parse_time_range(text: str, now_ms: int) -> OffsetRange:
    """Parse T1:T2. A moment may contain colons itself, so try every colon as the separator."""
    if _is_moment(text):
        return OffsetRange(parse_moment(text, now_ms))
    for colon in (index for index, letter in enumerate(text) if letter == ":"):
        begin, end = text[:colon], text[colon + 1 :]
        begin_is_valid = not begin or _is_moment(begin)
        end_is_valid = not end or end == "end" or _is_moment(end) or _DURATION.fullmatch(end)
        if begin_is_valid and end_is_valid and (begin or end):
            return _parse_times(begin, end, now_ms)
    raise BadOffset(f"'@{text}' is not a time; use @MILLISECONDS, @2026-11-15, @2026-11-15T08:30:00Z, @-1h or @T1:T2")


def _parse_times(begin: str, end: str, now_ms: int) -> OffsetRange:
    begin_position = parse_moment(begin, now_ms) if begin else START
    if not end:
        return OffsetRange(begin_position)
    if end == "end":
        return OffsetRange(begin_position, END)
    if _DURATION.fullmatch(end):
        if begin_position.anchor is not Anchor.TIME:
            raise BadOffset(f"{end!r} is a duration, and there is no time before it to count from")
        end_ms = begin_position.value + _duration_ms(end)
        if end_ms > OFFSET_MAX:
            raise BadOffset(f"{end!r} is too long")
        return OffsetRange(begin_position, Position(Anchor.TIME, end_ms))
    return OffsetRange(begin_position, parse_moment(end, now_ms))


def _is_moment(text: str) -> bool:
    plain_number = text.isascii() and text.isdigit() and len(text) in (10, 13)
    return plain_number or bool(_MOMENT.fullmatch(text) or (text[:1] == "-" and _DURATION.fullmatch(text[1:])))


def parse_moment(text: str, now_ms: int) -> Position:
    """Parse a time, written without its `@`, as a position."""
    if not _is_moment(text):
        raise BadOffset(f"'@{text}' is not a time; use @MILLISECONDS, @2026-11-15, @2026-11-15T08:30:00Z or @-1h")
    if text[0] == "-":
        return Position(Anchor.TIME, max(0, now_ms - _duration_ms(text[1:])))
    if text.isdigit():
        return Position(Anchor.TIME, int(text) * (1000 if len(text) == 10 else 1))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadOffset(f"'@{text}' is not a time: {error}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = round(moment.timestamp() * 1000)
    if milliseconds < 0:  # In ListOffsets these are not times: -1 is the end of the log, -2 its start.
        raise BadOffset(f"'@{text}' is before 1970; `start` is the oldest record")
    return Position(Anchor.TIME, milliseconds)


def parse_duration(text: str) -> int:
    """Return `15m`, `1h30m` or `500ms` in milliseconds; raise BadOffset if it is no duration."""
    if not _DURATION.fullmatch(text):
        raise BadOffset(f"{text!r} is not a duration; write 15m, 1h30m or 500ms")
    length_ms = _duration_ms(text)
    if length_ms > OFFSET_MAX:
        raise BadOffset(f"{text!r} is too long")
    return length_ms


def _duration_ms(text: str) -> int:
    parts = _DURATION_PART.findall(text)
    if not all(len(number) <= DIGITS_MAX for number, _ in parts):
        raise BadOffset(f"{text!r} is too long")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def resolve(position: Position, bounds: PartitionBounds) -> int:
    """Return the offset of a position in one partition. Distances are clamped to the log; an offset is not changed."""
    match position.anchor:
        case Anchor.OFFSET:
            return position.value
        case Anchor.AFTER_START:
            return min(bounds.start + position.value, bounds.end)
        case Anchor.BEFORE_END:
            return max(bounds.end - position.value, bounds.start)
        case Anchor.TIME:
            return bounds.at_time.get(position.value, bounds.end)
