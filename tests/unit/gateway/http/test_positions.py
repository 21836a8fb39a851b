"""How far a reader has got, as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.gateway.http.positions import looks_like_positions, positions_of, text_of
from moldau.web.failures import ApiError


@given(st.dictionaries(st.integers(0, 999_999_999), st.integers(0, 10**18 - 1), min_size=1, max_size=40))
def test_positions_are_read_as_they_were_written(positions: dict[int, int]) -> None:
    assert positions_of(text_of(positions)) == positions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "0:",
        ":1",
        "0:1,",
        "0:1,0:2",
        "-1:2",
        "0:-2",
        "0:1 ",
        "a:b",
        "0:" + "9" * 19,
        "٣:1",
        "0:1," * 1001 + "5:1",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="is no position"):
        positions_of(text)


def test_too_many_partitions_are_refused() -> None:
    with pytest.raises(ApiError):
        positions_of(text_of(dict.fromkeys(range(1_001), 0)))


def test_a_time_does_not_look_like_positions() -> None:
    assert not looks_like_positions("2026-11-19T08:00:00Z")
    assert not looks_like_positions("1700000000000")
    assert looks_like_positions("0:13,broken")
