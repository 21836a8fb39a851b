"""Byte fields of records as one Arrow column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from moldau.columns.fields import Fields
from moldau.columns.varints import Bytes


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
