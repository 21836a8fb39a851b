"""Decompresses batches one after the other into one buffer, which is reused.

A buffer for each batch, joined afterwards, would cost more than lz4 itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from moldau.columns.varints import Bytes, Numbers
from moldau.log.cleaning.pieces import PADDING
from moldau.wire.compression import Compression, decompress, decompress_into

BUFFER_BYTES: Final = 4 << 20
"""Size of the buffer, unless one batch is larger, or all of them are small."""
EXPANSION: Final = 16
"""How many times their size small batches are expected to take: four megabytes would be filled with zeros first."""


class BatchBodies(NamedTuple):
    """The records of some batches: content[begin:end] of each. At least PADDING follows the last one."""

    content: bytes | bytearray
    data: Bytes
    """`content` as a numpy array."""
    indexes: Numbers
    """Indexes of the batches in their piece."""
    begins: Numbers
    ends: Numbers


class DecompressionBuffer:
    def __init__(self, compressed_bytes: int, decompressed_bytes_max: int) -> None:
        self._decompressed_bytes_max = decompressed_bytes_max
        self._content = bytearray(min(BUFFER_BYTES, EXPANSION * compressed_bytes) + len(PADDING))
        self._indexes: list[int] = []
        self._ends: list[int] = []
        self._largest = 0
        """Size of the largest body so far: the next one is assumed to be no smaller."""

    def put(self, index: int, codec: Compression, body: memoryview) -> bool:
        """Decompress a body into the buffer. Return False if it does not fit: call `take` first."""
        begin = self._ends[-1] if self._ends else 0
        free = memoryview(self._content)[begin : -len(PADDING)]
        size = None if begin and len(free) < self._largest else decompress_into(codec, body, free)
        if size is None:
            if begin:
                return False
            whole = decompress(codec, body, self._decompressed_bytes_max)
            size = len(whole)
            self._content = bytearray(size + len(PADDING))
            self._content[:size] = whole
        self._indexes.append(index)
        self._ends.append(begin + size)
        self._largest = max(self._largest, size)
        return True

    def take(self) -> BatchBodies:
        """Return all bodies in the buffer. The next `put` overwrites them."""
        ends = np.array(self._ends, np.int64)
        begins = np.append(np.zeros(1, np.int64), ends[:-1])
        indexes = np.array(self._indexes, np.int64)
        self._indexes, self._ends = [], []
        return BatchBodies(self._content, np.frombuffer(self._content, np.uint8), indexes, begins, ends)
