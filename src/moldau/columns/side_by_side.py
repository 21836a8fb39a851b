"""Finds the start of each record in many batches at once: one step of numpy goes to the next record in all of them.

A step costs the same for ten batches as for a hundred. When fewer than BATCHES_MIN still have records, those are walked
one by one. As in `record_starts`, the result is a guess until callers have verified it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from moldau.columns.record_starts import walk_long, walk_short
from moldau.columns.varints import Bytes, Numbers

BATCHES_MIN: Final = 12
"""Below this many batches, walking each in Python is as fast as steps of numpy."""


def _steps() -> npt.NDArray[np.int32]:
    """The distance to the next record, by the first two bytes of a record as a little-endian number."""
    low, high = np.arange(1 << 16, dtype=np.int32) & 0xFF, np.arange(1 << 16, dtype=np.int32) >> 8
    return np.where(low < 0x80, 1 + (low >> 1), 2 + (((low & 0x7F) | (high & 0x7F) << 7) >> 1)).astype(np.int32)


_STEPS: Final = _steps()


def starts_of_batches(content: bytes | bytearray, data: Bytes, begins: Numbers, counts: Numbers) -> Numbers:
    """Return the position of each record's length, batch after batch. `data` is `content` as a numpy array. IndexError
    if the records do not fit into it."""
    try:
        starts = _walk(content, data, begins, counts)
        is_long = (data[starts] >= 0x80) & (data[starts + 1] >= 0x80)
        if not is_long.any():
            return starts
    except IndexError:
        pass  # a length of more than two bytes was misread, or the records do not fit
    parts = [
        [begin, *walk_long(content, begin, count - 1)]
        for begin, count in zip(begins.tolist(), counts.tolist(), strict=True)
        if count
    ]
    return np.array([start for part in parts for start in part], np.int64)


def _walk(content: bytes | bytearray, data: Bytes, begins: Numbers, counts: Numbers) -> Numbers:
    """Return the starts, if no length takes more than two bytes (up to 8191)."""
    starts = np.empty(int(counts.sum()), np.int64)
    by_count = np.argsort(-counts, kind="stable")
    sorted_counts = counts[by_count]
    first_row = (np.cumsum(counts) - counts)[by_count]
    """Where the starts of each batch go."""
    at = begins[by_count]
    two_bytes: npt.NDArray[np.uint16] = np.ndarray((data.size - 1,), "<u2", data, strides=(1,))
    walked = 0
    batches = int(np.count_nonzero(sorted_counts))
    while batches >= BATCHES_MIN:
        # Each of these batches has at least this many records left.
        steps = int(sorted_counts[batches - 1]) - walked
        at = at[:batches]
        found = np.empty((steps, batches), np.int64)
        for step in range(steps):
            found[step] = at
            at = at + _STEPS.take(two_bytes[at])
        starts[first_row[:batches] + np.arange(walked, walked + steps)[:, None]] = found
        walked += steps
        batches = int(np.count_nonzero(sorted_counts > walked))
    for place, begin, count in zip(
        first_row[:batches].tolist(), at[:batches].tolist(), sorted_counts[:batches].tolist(), strict=True
    ):
        starts[place + walked] = begin
        starts[place + walked + 1 : place + count] = walk_short(content, begin, count - walked - 1)
    return starts
