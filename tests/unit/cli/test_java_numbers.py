"""Floating-point numbers as Java prints them."""

from __future__ import annotations

import math
import random
import struct

import pytest

from moldau.cli.kafka.java.numbers import double_text, float_text

BOTH = [
    (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-1.5, "-1.5"), (100.0, "100.0"), (123456.5, "123456.5"),
    (9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.0, "1.2345678E7"), (0.5, "0.5"), (0.0009765625, "9.765625E-4"),
    (-1e10, "-1.0E10"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN"),
]  # fmt: skip
DOUBLES = [
    (0.1, "0.1"), (0.001, "0.001"), (0.00099, "9.9E-4"), (1e23, "1.0E23"), (2e23, "2.0E23"), (1.1, "1.1"),
    (2.0**-44, "5.684341886080802E-14"), (5e-324, "4.9E-324"), (2.2250738585072014e-308, "2.2250738585072014E-308"),
    (1.7976931348623157e308, "1.7976931348623157E308"), (math.pi, "3.141592653589793"), (1 / 3, "0.3333333333333333"),
]  # fmt: skip
FLOATS = [
    (0.1, "0.1"), (0.001, "0.001"), (3.4028235e38, "3.4028235E38"), (1.4e-45, "1.4E-45"),
    (1.17549435e-38, "1.1754944E-38"),
    (math.pi, "3.1415927"), (1 / 3, "0.33333334"), (16777216.0, "1.6777216E7"), (33554432.0, "3.3554432E7"),
    (1e10, "1.0E10"), (2e-44, "2.0E-44"), (9.8e-45, "9.8E-45"),
    (-25297.0625, "-25297.062"), (2729521.75, "2729521.8"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), [*BOTH, *DOUBLES])
def test_doubles(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(("value", "text"), [*BOTH, *FLOATS])
def test_floats(value: float, text: str) -> None:
    assert float_text(struct.unpack(">f", struct.pack(">f", value))[0]) == text


def test_random_numbers_survive_text_and_parse() -> None:
    rng = random.Random(1)
    for _ in range(2_000):
        data = rng.randbytes(4)
        if math.isfinite(value := struct.unpack(">f", data)[0]):
            assert struct.pack(">f", float(float_text(value))) == data
        data = rng.randbytes(8)
        if math.isfinite(value := struct.unpack(">d", data)[0]):
            assert struct.pack(">d", float(double_text(value))) == data
