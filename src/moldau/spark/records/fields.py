"""Byte fields inside records: where those of all rows begin and end, and their bytes as one Arrow column.

A field is a length as zigzag varint, -1 for null, and so many bytes. It may not reach beyond the record it is in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from moldau.spark.records.varints import Bytes, Mask, Numbers, read, require


class Fields(NamedTuple):
    """One field of each row: its bytes are data[start:end], none if it is null."""

    starts: Numbers
    ends: Numbers
    is_null: Mask

    def every_second(self, first: int) -> Fields:
        return Fields(self.starts[first::2], self.ends[first::2], self.is_null[first::2])


def read_fields(data: Bytes, at: Numbers, limits: Numbers) -> Fields:
    """The fields at these positions, each inside its limit."""
    length, starts = read(data, at)
    is_null = length < 0
    require(length >= -1, "a field of negative length")
    ends = starts + np.maximum(length, 0)
    require(ends <= limits, "a field ends beyond its record")
    return Fields(starts, ends, is_null)


def binary_column(data: Bytes, fields: Fields) -> pa.Array:
    """A copy of the fields' bytes. They must go up, as they do when read from records one after the other.

    Then all of them are slots of one Arrow array that lies over the data as it is (every second slot is what is between
    two fields), and Arrow itself picks those wanted.
    """
    rows = fields.starts.size
    if fields.is_null.all():
        return pa.nulls(rows, pa.binary())
    offsets = np.empty(2 * rows + 1, np.int32)
    offsets[:-1:2] = fields.starts
    offsets[1::2] = fields.ends
    offsets[-1] = fields.ends[-1]
    slots = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    wanted = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return slots.take(pa.array(wanted, mask=fields.is_null if fields.is_null.any() else None))
