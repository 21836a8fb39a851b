"""Varints encoded and decoded as columns, compared with `wire.records`."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from harness.depth import deep
from hypothesis import given, settings

from moldau.columns.varints import BadRow, put, read, sizes, zigzag
from moldau.wire.records import append_varint

numbers64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(
    [sign * (1 << bits) + step for bits in range(0, 63, 7) for sign in (1, -1) for step in (-1, 0, 1)]
)


def one_by_one(numbers: list[int]) -> list[bytes]:
    target = []
    for number in numbers:
        target.append(bytearray())
        append_varint(target[-1], number)
    return [bytes(one) for one in target]


@settings(max_examples=deep(70))
@given(st.lists(numbers64, min_size=1, max_size=20))
def test_numbers_are_written_measured_and_read_back(numbers: list[int]) -> None:
    single = one_by_one(numbers)
    raw = zigzag(np.array(numbers, np.int64))
    size = sizes(raw)
    assert size.tolist() == [len(one) for one in single]
    ends = np.cumsum(size)
    data = np.zeros(int(ends[-1]), np.uint8)
    assert put(data, ends - size, raw, size).tolist() == ends.tolist()
    assert data.tobytes() == b"".join(single)
    values, behind = read(data, ends - size, bits=64)
    assert values.tolist() == numbers
    assert behind.tolist() == ends.tolist()


@settings(max_examples=deep(35))
@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=20))
def test_32_bit_numbers_are_read_with_32_bits(numbers: list[int]) -> None:
    single = one_by_one(numbers)
    starts = np.cumsum([0, *(len(one) for one in single[:-1])])
    assert read(np.frombuffer(b"".join(single), np.uint8), starts)[0].tolist() == numbers


@pytest.mark.parametrize(
    ("data", "bits"),
    [
        (b"\xff\xff\xff\xff\xff\x00", 32),
        (b"\x80\x80\x80\x80\x10", 32),
        (b"\xff" * 10 + b"\x00", 64),
        (b"\xff" * 9 + b"\x02", 64),
    ],
)
@pytest.mark.parametrize("others", [0, 1, 40])
def test_a_varint_that_is_too_long_is_refused_with_its_row(data: bytes, bits: int, others: int) -> None:
    buffer = np.frombuffer(b"\x02" * others + data, np.uint8)
    with pytest.raises(BadRow) as refused:
        read(buffer, np.arange(others + 1), bits)
    assert refused.value.row == others


def test_nothing_is_read_beyond_the_data() -> None:
    """A position behind the end of the data shows that a number is missing."""
    data = np.frombuffer(b"\x02\x80", np.uint8)
    with pytest.raises(BadRow):
        read(data, np.array([1]))
    values, ends = read(data[:1], np.array([0, 5]))
    assert values[0] == 1
    assert ends.tolist() == [1, 6]


def test_empty_arrays() -> None:
    none = np.empty(0, np.int64)
    assert sizes(zigzag(none)).size == 0
    assert put(np.empty(0, np.uint8), none, zigzag(none), none).size == 0
    assert read(np.empty(0, np.uint8), none)[0].size == 0
