"""Byte fields inside records: the start and end of a field in all rows.

A field is a length as a zigzag varint (-1 for null) and that many bytes. It must end inside its record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from moldau.columns.varints import Bytes, Mask, Numbers, read, require


class Fields(NamedTuple):
    """One field of each row: its bytes are data[start:end], empty if it is null."""

    starts: Numbers
    ends: Numbers
    is_null: Mask

    def every_second(self, first: int) -> Fields:
        """Return every second field from row `first` on: names and values of headers alternate."""
        return Fields(self.starts[first::2], self.ends[first::2], self.is_null[first::2])


def read_fields(data: Bytes, at: Numbers, limits: Numbers) -> Fields:
    """Read the fields at these positions, each inside its limit."""
    length, starts = read(data, at)
    is_null = length < 0
    require(length >= -1, "a field of negative length")
    ends = starts + np.maximum(length, 0)
    require(ends <= limits, "a field ends beyond its record")
    return Fields(starts, ends, is_null)
