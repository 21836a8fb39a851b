"""The sparse offset index of one segment: from an offset to a position in the log shortly before it.

Entries are kept in memory as the bytes of the file. `<base offset>.index` is written only at roll and close, because
it can be rebuilt from the log. 8 bytes an entry, big-endian, both columns rising:

    int32  last offset of a batch, less the segment's base offset
    int32  position of that batch in the .log file
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

ENTRY: Final = struct.Struct(">II")
ENTRY_BYTES: Final = ENTRY.size
_TWO_ENTRIES: Final = struct.Struct(">IIII")
UNKNOWN: Final = 2**32 - 1


class OffsetIndex:
    __slots__ = ("_bases", "_relative", "base_offset", "entries")

    def __init__(self, base_offset: int, entries: bytes = b"") -> None:
        self.base_offset = base_offset
        self.entries = bytearray(entries)
        self._relative = _first_column(entries[: len(self) * ENTRY_BYTES])
        """The offsets alone, as numbers: a lookup is one native bisection."""
        self._bases = array("I", [UNKNOWN]) * len(self._relative)
        """The relative base offset of each indexed batch; UNKNOWN if it was written before this process started."""

    def __len__(self) -> int:
        return len(self.entries) // ENTRY_BYTES

    def append(self, last_offset: int, position: int, base_offset: int | None = None) -> None:
        relative = last_offset - self.base_offset
        self.entries += ENTRY.pack(relative, position)
        self._relative.append(relative)
        self._bases.append(UNKNOWN if base_offset is None else base_offset - self.base_offset)

    def exact(self, offset: int) -> tuple[int, int, int] | None:
        """(position, base offset, size) of the batch that holds `offset`, if both it and the next batch are indexed.
        This saves the disk read, which is most of what a lookup costs."""
        relative_offset = offset - self.base_offset
        index = bisect_left(self._relative, relative_offset)
        if index + 1 >= len(self._relative) or self._bases[index] > relative_offset:
            return None
        if self._bases[index + 1] != self._relative[index] + 1:
            return None
        _, position, _, end = _TWO_ENTRIES.unpack_from(self.entries, index * ENTRY_BYTES)
        return position, self.base_offset + self._bases[index], end - position

    def lookup(self, offset: int) -> tuple[int | None, int]:
        """The last entry not after `offset`: (last offset of a batch, its position). A walk forward from there meets
        the batch with `offset`. (None, 0) if no entry is before it."""
        index = bisect_right(self._relative, offset - self.base_offset)
        return self.entry(index - 1) if index else (None, 0)

    def first_from(self, position: int) -> int | None:
        """The last offset of the first batch in the index that lies at `position` or behind it."""
        index = bisect_left(range(len(self)), position, key=lambda each: self.entry(each)[1])
        return self.entry(index)[0] if index < len(self) else None

    def last(self) -> tuple[int | None, int]:
        return self.entry(len(self) - 1) if self.entries else (None, 0)

    def entry(self, index: int) -> tuple[int, int]:
        """(last offset of the batch, its position)."""
        relative, position = ENTRY.unpack_from(self.entries, index * ENTRY_BYTES)
        return self.base_offset + relative, position

    def truncate(self, offset: int) -> None:
        """Remove entries of batches that reach `offset` or beyond."""
        keep = bisect_left(self._relative, offset - self.base_offset)
        del self.entries[keep * ENTRY_BYTES :]
        del self._relative[keep:]
        del self._bases[keep:]

    def is_sane(self, log_bytes: int) -> bool:
        """Whether all entries are whole, and the last is above the first and inside the log. A cheap check."""
        if len(self.entries) % ENTRY_BYTES:
            return False
        if not self.entries:
            return True
        (first_offset, first_position), (last_offset, last_position) = self.entry(0), self.entry(len(self) - 1)
        rises = len(self) == 1 or (last_offset > first_offset and last_position > first_position)
        return rises and last_position < log_bytes


def _first_column(entries: bytes) -> array[int]:
    columns = array("I")
    columns.frombytes(entries)
    if sys.byteorder == "little":
        columns.byteswap()
    return columns[::2]
