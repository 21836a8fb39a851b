"""Zigzag varints by the column: numpy reads, measures and writes the numbers of all rows at once.

Nothing here knows the meaning of a number. A row whose bytes are no number is a `BadRow`; only callers know its offset.

A number n is stored as (n << 1) ^ (n >> 63), seven bits per byte, lowest first; bit 7 says that another byte follows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
"""Numbers and positions: numpy indexes with int64 and would convert anything smaller first."""
Raw = npt.NDArray[np.uint64]
"""Numbers after zigzag."""
Mask = npt.NDArray[np.bool_]

FEW: Final = 8
"""If at most one row in this many continues, these rows are read separately."""
VARINT_BYTES_MAX: Final = 10


class BadRow(Exception):
    """Row `row` of the arrays breaks the format. Becomes MalformedData where topic and offset are known."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row
        self.what = what


def require(holds: Mask, what: str) -> None:
    """Raise BadRow for the first row where `holds` is false."""
    if not holds.all():
        raise BadRow(int(np.argmin(holds)), what)


def read(data: Bytes, at: Numbers, bits: int = 32) -> tuple[Numbers, Numbers]:
    """Return the numbers at these positions, and the positions behind them. `bits` limits both bytes and values.

    A position beyond the data reads its last byte instead: callers compare the resulting position with the record's
    end, which they must do anyway, and nothing is ever read outside.
    """
    byte = data.take(at, mode="clip")
    raw = (byte & 0x7F).astype(np.uint64)
    ends = at + 1
    has_more = byte > 0x7F
    shift = 7
    # While many numbers continue, reading another byte of all rows is cheaper than selecting these rows.
    while np.count_nonzero(has_more) * FEW > at.size:
        byte = data.take(ends, mode="clip") * has_more
        _check_width(byte, shift, bits)
        raw |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        ends += has_more
        has_more = byte > 0x7F
        shift += 7
    rows = np.flatnonzero(has_more)
    while rows.size:
        byte = data.take(ends[rows], mode="clip")
        _check_width(byte, shift, bits, rows)
        raw[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        ends[rows] += 1
        rows = rows[byte > 0x7F]
        shift += 7
    return ((raw >> np.uint64(1)) ^ -(raw & np.uint64(1))).view(np.int64), ends


def skip(data: Bytes, at: Numbers) -> Numbers:
    """Return the positions behind numbers of up to 64 bits, without decoding them."""
    ends = at + 1
    has_more = data.take(at, mode="clip") > 0x7F
    for _ in range(VARINT_BYTES_MAX - 1):
        if not has_more.any():
            return ends
        byte = data.take(ends, mode="clip")
        ends += has_more
        has_more &= byte > 0x7F
    require(~has_more, "a varint without an end")
    return ends


def _check_width(byte: Bytes, shift: int, bits: int, rows: Numbers | None = None) -> None:
    """Check the last possible byte: it has only some bits left, and bit 7 (another byte follows) must be 0."""
    if bits - shift < 7 and (is_wide := byte >> (bits - shift) != 0).any():
        first = int(np.argmax(is_wide))
        raise BadRow(first if rows is None else int(rows[first]), f"a varint of more than {bits} bits")


def zigzag(numbers: Numbers) -> Raw:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def sizes(raw: Raw) -> Numbers:
    """Return the number of bytes of each number."""
    count = np.ones(raw.size, np.int64)
    rest = int(raw.max(initial=0)) >> 7
    bound = 1
    while rest:
        bound <<= 7
        count += raw >= np.uint64(bound)
        rest >>= 7
    return count


def put(target: Bytes, at: Numbers, raw: Raw, size: Numbers) -> Numbers:
    """Write each number at its position, where `size` bytes are free; return the positions behind them."""
    size_max = int(size.max(initial=0))
    if size_max and int(size.min()) == size_max:
        _put_same_size(target, at, raw, size_max)
    else:
        for index in range(size_max):
            rows = np.flatnonzero(size > index)
            byte = (raw[rows] >> np.uint64(7 * index)).astype(np.uint8) & 0x7F
            byte |= (size[rows] > index + 1).view(np.uint8) << 7
            target[at[rows] + index] = byte
    return at + size


def _put_same_size(target: Bytes, at: Numbers, raw: Raw, size: int) -> None:
    """Write numbers of one size, without selecting rows."""
    for index in range(size):
        byte = (raw >> np.uint64(7 * index)).astype(np.uint8)
        target[at + index] = byte | 0x80 if index < size - 1 else byte
