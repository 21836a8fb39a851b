"""The grammar of `moldau consume -o`: offsets, times and ranges of them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.operations.offsets import (
    END,
    START,
    Anchor,
    BadOffset,
    OffsetRange,
    PartitionBounds,
    Position,
    parse_duration,
    parse_position,
    parse_range,
    resolve,
)

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
NOVEMBER_15_MS = 1_794_700_800_000  # 2026-11-15T00:00:00Z


def offset(value: int) -> Position:
    return Position(Anchor.OFFSET, value)


def at(milliseconds: int) -> Position:
    return Position(Anchor.TIME, milliseconds)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("start", OffsetRange(START)),
        ("end", OffsetRange(END)),
        ("0", OffsetRange(offset(0))),
        ("17", OffsetRange(offset(17))),
        ("17:", OffsetRange(offset(17))),
        ("+5", OffsetRange(Position(Anchor.AFTER_START, 5))),
        ("-5", OffsetRange(Position(Anchor.BEFORE_END, 5))),
        (":end", OffsetRange(START, END)),
        (":9", OffsetRange(START, offset(9))),
        ("3:9", OffsetRange(offset(3), offset(9))),
        ("3:3", OffsetRange(offset(3), offset(3))),
        ("start:end", OffsetRange(START, END)),
        ("-10:end", OffsetRange(Position(Anchor.BEFORE_END, 10), END)),
        ("+10:20", OffsetRange(Position(Anchor.AFTER_START, 10), offset(20))),
        ("9223372036854775807", OffsetRange(offset(2**63 - 1))),
        ("@1794700800000", OffsetRange(at(NOVEMBER_15_MS))),
        ("@1794700800", OffsetRange(at(NOVEMBER_15_MS))),
        ("@1794700800000:", OffsetRange(at(NOVEMBER_15_MS))),
        ("@2026-11-15", OffsetRange(at(NOVEMBER_15_MS))),
        ("@2026-11-15T01:00:00", OffsetRange(at(NOVEMBER_15_MS + HOUR_MS))),
        ("@2026-11-15T01:00:00Z", OffsetRange(at(NOVEMBER_15_MS + HOUR_MS))),
        ("@2026-11-15T02:00:00.25+01:00", OffsetRange(at(NOVEMBER_15_MS + HOUR_MS + 250))),
        ("@2026-11-15:end", OffsetRange(at(NOVEMBER_15_MS), END)),
        ("@2026-11-15:2h", OffsetRange(at(NOVEMBER_15_MS), at(NOVEMBER_15_MS + 2 * HOUR_MS))),
        (
            "@2026-11-15T01:00:00Z:2026-11-15T02:00:00Z",
            OffsetRange(at(NOVEMBER_15_MS + HOUR_MS), at(NOVEMBER_15_MS + 2 * HOUR_MS)),
        ),
        ("@-1h", OffsetRange(at(NOW_MS - HOUR_MS))),
        ("@-1h:end", OffsetRange(at(NOW_MS - HOUR_MS), END)),
        ("@-48h:-24h", OffsetRange(at(NOW_MS - 48 * HOUR_MS), at(NOW_MS - 24 * HOUR_MS))),
        ("@-1d2h3m4s5ms", OffsetRange(at(NOW_MS - 26 * HOUR_MS - 184_005))),
        ("@-1h:30m", OffsetRange(at(NOW_MS - HOUR_MS), at(NOW_MS - HOUR_MS // 2))),
        ("@:-1h", OffsetRange(START, at(NOW_MS - HOUR_MS))),
        ("@:end", OffsetRange(START, END)),
    ],
)
def test_valid_ranges(text: str, meaning: OffsetRange) -> None:
    assert parse_range(text, NOW_MS) == meaning


@pytest.mark.parametrize(
    "text",
    [
        "", ":", "@", "@:", "foo", "begin", "END", "1.5", "--5", "+-5", "+", "-", "5-9", "9:3", "1:2:3", "1:foo",
        ":-5", "٣", "9223372036854775808", "@12", "@17947008000000", "@2026-13-01", "@2026-11-15T25:00:00Z",
        "@2026-11-15T01:00", "@1h", "@:1h", "@-1w", "@-", "@--1h", "@end", "@end:end", "@-1h:-2h",
        "@2026-11-15:2026-11-14", "@2026-11-15:2h:3h",
        "9" * 5000, "-" + "9" * 5000, ":" + "9" * 5000, "@-" + "9" * 5000 + "h", "@-1h:" + "9" * 5000 + "h",
        "@-1h:9223372036854775807ms",
    ],
)  # fmt: skip
def test_invalid_ranges_are_refused(text: str) -> None:
    with pytest.raises(BadOffset) as refusal:
        parse_range(text, NOW_MS)
    assert "\n" not in str(refusal.value)


@given(st.text(alphabet="0123456789@:+-.TZhmsdend staro", max_size=24))
def test_any_text_is_a_range_or_raises_bad_offset(text: str) -> None:
    with suppress(BadOffset):
        assert isinstance(parse_range(text, NOW_MS), OffsetRange)


def test_a_position_has_no_end() -> None:
    assert parse_position("-7", NOW_MS) == Position(Anchor.BEFORE_END, 7)
    assert parse_position("@-1h", NOW_MS) == at(NOW_MS - HOUR_MS)
    for text in ("1:2", "@-1h:end", ":end", "@"):
        with pytest.raises(BadOffset):
            parse_position(text, NOW_MS)


def test_times_to_look_up_at_the_broker() -> None:
    assert parse_range("@-2h:-1h", NOW_MS).times == (NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS)
    assert parse_range("@-2h:end", NOW_MS).times == (NOW_MS - 2 * HOUR_MS,)
    assert parse_range("3:9", NOW_MS).times == ()


@pytest.mark.parametrize(
    ("position", "found"),
    [
        (START, 10),
        (END, 30),
        (offset(3), 3),
        (offset(99), 99),
        (Position(Anchor.AFTER_START, 5), 15),
        (Position(Anchor.AFTER_START, 500), 30),
        (Position(Anchor.BEFORE_END, 5), 25),
        (Position(Anchor.BEFORE_END, 500), 10),
        (at(1000), 12),
        (at(2000), 30),
    ],
)
def test_positions_are_resolved(position: Position, found: int) -> None:
    assert resolve(position, PartitionBounds(start=10, end=30, at_time={1000: 12})) == found


@pytest.mark.parametrize(("text", "length_ms"), [("15m", 900_000), ("1h30m", 5_400_000), ("500ms", 500), ("0s", 0)])
def test_durations(text: str, length_ms: int) -> None:
    assert parse_duration(text) == length_ms


@pytest.mark.parametrize("text", ["", "5", "-5m", "5 m", "m", "1w", "9" * 5000 + "s", "9999999999999d"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(BadOffset):
        parse_duration(text)
