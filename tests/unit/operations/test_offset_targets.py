"""The grammar of the position that a group is reset to."""

from __future__ import annotations

import pytest

from moldau.operations.offset_targets import Kind, Target, parse_target, parse_topic, resolve
from moldau.operations.offsets import BadOffset, PartitionBounds

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target(Kind.START)),
        ("start", Target(Kind.START)),
        ("latest", Target(Kind.END)),
        ("end", Target(Kind.END)),
        ("current", Target(Kind.CURRENT)),
        ("12", Target(Kind.OFFSET, 12)),
        ("+12", Target(Kind.SHIFT, 12)),
        ("-12", Target(Kind.SHIFT, -12)),
        ("@-1h", Target(Kind.TIME, NOW_MS - 3_600_000)),
        ("@1700000000000", Target(Kind.TIME, 1_700_000_000_000)),
        ("@2026-11-15", Target(Kind.TIME, 1_794_700_800_000)),
    ],
)
def test_targets(text: str, target: Target) -> None:
    assert parse_target(text, NOW_MS) == target


@pytest.mark.parametrize("text", ["@1969-12-31T23:59:59.999Z", "@1969-12-31", "@1970-01-01T00:00:00+01:00"])
def test_times_before_1970_are_refused_because_list_offsets_gives_them_other_meanings(text: str) -> None:
    with pytest.raises(BadOffset, match="is before 1970"):
        parse_target(text, NOW_MS)
    assert parse_target("@1970-01-01", NOW_MS) == Target(Kind.TIME, 0)


@pytest.mark.parametrize("text", ["", "+", "-", "1.5", "@", "@yesterday", "1:2", "Earliest", "٣", "9" * 5000])
def test_invalid_targets_are_refused(text: str) -> None:
    with pytest.raises(BadOffset):
        parse_target(text, NOW_MS)


@pytest.mark.parametrize(
    ("target", "committed", "offset"),
    [
        (Target(Kind.START), 15, 10),
        (Target(Kind.END), 15, 20),
        (Target(Kind.OFFSET, 12), 15, 12),
        (Target(Kind.OFFSET, 3), 15, 10),
        (Target(Kind.OFFSET, 99), None, 20),
        (Target(Kind.SHIFT, -2), 15, 13),
        (Target(Kind.SHIFT, -9), 15, 10),
        (Target(Kind.SHIFT, 9), 15, 20),
        (Target(Kind.SHIFT, 1), None, None),
        (Target(Kind.CURRENT), 15, 15),
        (Target(Kind.CURRENT), None, 20),
        (Target(Kind.TIME, 7), 15, 18),
        (Target(Kind.TIME, 8), 15, 20),  # no record is that young
    ],
)
def test_a_target_is_resolved_inside_the_log(target: Target, committed: int | None, offset: int | None) -> None:
    assert resolve(target, committed, PartitionBounds(10, 20, {7: 18})) == offset


def test_topics_with_and_without_partitions() -> None:
    assert parse_topic("orders") == ("orders", [])
    assert parse_topic("orders:0,3") == ("orders", [0, 3])
    for wrong in ("orders:", "orders:a", ":0", "orders:0,", "orders:-1", "orders:" + "9" * 5000):
        with pytest.raises(BadOffset):
            parse_topic(wrong)
