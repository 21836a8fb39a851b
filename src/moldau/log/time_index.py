"""The sparse time index of one segment: from a timestamp to an offset below which all records are older.

Written at roll and close like the offset index. 12 bytes an entry, big-endian, both columns rising:

    int64  the largest timestamp so far
    uint32 last offset of the batch that holds it, less the segment's base offset

The last entry of a closed segment holds its largest timestamp: retention reads only that.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Final, NamedTuple

ENTRY: Final = struct.Struct(">qI")
ENTRY_BYTES: Final = ENTRY.size


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int = -1
    """Of the batch, for ListOffsets; the index does not have it."""


class TimeIndex:
    __slots__ = ("base_offset", "entries")

    def __init__(self, base_offset: int, entries: bytes = b"") -> None:
        self.base_offset = base_offset
        self.entries = bytearray(entries)

    def __len__(self) -> int:
        return len(self.entries) // ENTRY_BYTES

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is larger than all before it."""
        if timestamp > self.last().timestamp:
            self.entries += ENTRY.pack(timestamp, offset - self.base_offset)

    def last(self) -> TimestampOffset:
        return self.entry(len(self) - 1) if self.entries else TimestampOffset(-1, self.base_offset)

    def entry(self, index: int) -> TimestampOffset:
        timestamp, relative = ENTRY.unpack_from(self.entries, index * ENTRY_BYTES)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> int:
        """An offset at or before the first record whose timestamp is at least `timestamp`."""
        index = bisect_right(range(len(self)), timestamp - 1, key=self._timestamp)
        return self.entry(index - 1).offset if index else self.base_offset

    def truncate(self, offset: int) -> None:
        """Remove entries of batches that reach `offset` or beyond."""
        keep = len(self)
        while keep and self.entry(keep - 1).offset >= offset:
            keep -= 1
        del self.entries[keep * ENTRY_BYTES :]

    def is_sane(self, next_offset: int) -> bool:
        """Whether all entries are whole, the last one is larger than the first in both columns, and its offset is below
        `next_offset`. Those between are not read."""
        if len(self.entries) % ENTRY_BYTES:
            return False
        if not self.entries:
            return True
        first, last = self.entry(0), self.entry(len(self) - 1)
        rises = len(self) == 1 or (last.timestamp > first.timestamp and last.offset > first.offset)
        return rises and first.timestamp >= 0 and last.offset < next_offset

    def _timestamp(self, index: int) -> int:
        timestamp: int = ENTRY.unpack_from(self.entries, index * ENTRY_BYTES)[0]
        return timestamp
