"""Byte fields of records as one Arrow column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from moldau.columns.fields import Fields
from moldau.columns.varints import Bytes


def binary_column(data: Bytes, fields: Fields) -> pa.Array:
    """Copy the fields' bytes into a column. Their positions must increase, as when records are read in order.

    Then the fields are slots of one Arrow array over the data (every second slot is the gap between two fields), and
    Arrow's `take` selects the fields.
    """
    rows = fields.starts.size
    if fields.is_null.all():
        return pa.nulls(rows, pa.binary())
    offsets = np.empty(2 * rows + 1, np.int32)
    offsets[:-1:2] = fields.starts
    offsets[1::2] = fields.ends
    offsets[-1] = fields.ends[-1]
    slots = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    field_slots = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return slots.take(pa.array(field_slots, mask=fields.is_null if fields.is_null.any() else None))
