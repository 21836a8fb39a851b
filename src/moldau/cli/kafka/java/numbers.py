"""Numbers as Java reads and prints them: integers read, floating-point numbers printed.

These are printed as Float.toString and Double.toString of JDK 19 and later do. The digits are the fewest that stand for
the number, at least two, and of those the nearest to it. Numbers below 0.001 and from 10,000,000 on have an exponent.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Final

_FLOAT: Final = struct.Struct(">f")
_INTEGER: Final = re.compile("[+-]?[0-9]{1,100}")
"""Longer texts fit into no type, and Python refuses to convert thousands of digits."""
FLOAT_DIGITS_MAX: Final = 9
"""So many are enough for any float."""


def parse_integer(text: str, bits: int = 32) -> int:
    """Parse a number of the digits 0 to 9 as Integer.parseInt does, with 16 or 64 bits as those of Short and Long do.
    Raise ValueError with Java's message. Python's `int` accepts blanks, underscores and any size too."""
    if not _INTEGER.fullmatch(text) or not _fits(int(text), max(bits, 32)):
        raise ValueError(f'For input string: "{text}"')
    if not _fits(int(text), bits):
        raise ValueError(f'Value out of range. Value:"{text}" Radix:10')
    return int(text)


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits - 1) <= number < 1 << bits - 1


def double_text(value: float) -> str:
    if not math.isfinite(value):
        return _not_finite(value)
    shortest = Decimal(repr(value))
    # One digit stands for 4.9E-324, as 5E-324, but two are nearer.
    return _text(Decimal(f"{value:.1e}") if len(shortest.normalize().as_tuple().digits) == 1 else shortest)


def float_text(value: float) -> str:
    """Return the text of a number that a float of four bytes holds."""
    return _text(_shortest_float(value)) if math.isfinite(value) else _not_finite(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _shortest_float(value: float) -> Decimal:
    exact = Decimal(value)
    for digits in range(2, FLOAT_DIGITS_MAX):
        roundings = (Context(digits, rounding) for rounding in (ROUND_FLOOR, ROUND_CEILING))
        same = [each for each in (context.create_decimal(exact) for context in roundings) if _as_float(each) == value]
        if same:
            # Of two that are equally near, the even one.
            return min(same, key=lambda each: (abs(each - exact), each.as_tuple().digits[-1] % 2))
    return Context(FLOAT_DIGITS_MAX).create_decimal(exact)


def _as_float(number: Decimal) -> float | None:
    """Return the nearest float; None if that is infinite."""
    try:
        nearest: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        return None
    return nearest


def _text(number: Decimal) -> str:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    text = "".join(map(str, digits))
    exponent += len(text) - 1
    if not number:
        text, exponent = "0", 0
    if 0 <= exponent < 7:
        text = text.ljust(exponent + 1, "0")
        whole, fraction, power = text[: exponent + 1], text[exponent + 1 :], ""
    elif -3 <= exponent < 0:
        whole, fraction, power = "0", "0" * (-exponent - 1) + text, ""
    else:
        whole, fraction, power = text[0], text[1:], f"E{exponent}"
    return f"{'-' * sign}{whole}.{fraction.rstrip('0') or '0'}{power}"
