"""Finds what readers ask for in the segments of a log: batches by offset, aborted transactions."""

from __future__ import annotations

import sys
from functools import partial
from itertools import islice
from typing import NamedTuple

from moldau.base.errors import MalformedData
from moldau.log.files import File
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.log.txn_index import AbortedTxn
from moldau.log.walk import walk_headers
from moldau.wire.batch import BATCH_HEADER_BYTES, LENGTH_PREFIX, BatchHeader, read_header


class Slice(NamedTuple):
    """A run of bytes in a segment's file: whole batches, except perhaps the last. Holding it keeps the file open."""

    file: File
    position: int
    length: int
    is_hot: bool = False
    """Written lately by this process: most likely in the page cache."""

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)


new_slice = partial(tuple.__new__, Slice)
"""Makes a Slice from all its fields, without its own constructor, whose cost every fetch would pay."""


def first_batch(piece: Slice) -> BatchHeader:
    """The header of the batch with which a slice begins. Raise StorageFault, MalformedData."""
    return read_header(piece.file.pread(BATCH_HEADER_BYTES, piece.position))


def quick_find(segment: Segment, offset: int) -> tuple[int | None, int]:
    """(position of the batch that contains `offset`, its size or 0 if unknown), or (None, 0) if that would need a read
    of the segment. `offset` is not before the segment."""
    position = segment.recent_positions.get(offset)
    if position is not None:
        return position, 0
    exact = segment.offset_index.exact(offset)
    return (None, 0) if exact is None else (exact[0], exact[2])


def find_batch(segments: Segments, offset: int, up_to: int, end_offset: int) -> tuple[Segment, int, int, int]:
    """(segment, position and size of the batch that contains `offset`, where reading must end) by way of the indexes.
    If compaction removed that batch, it is the next one, perhaps of a later segment. All 0 if there is none."""
    for place in range(segments.floor(offset), len(segments)):
        segment = segments.at(place)
        found = segment.locate(offset)
        if found is not None:
            next_base = segments.next_base(place)
            is_whole = up_to >= (end_offset if next_base is None else next_base)
            return segment, found[0], found[2], segment.size if is_whole else position_of(segment, up_to)
    return segments.active, 0, 0, 0


def position_of(segment: Segment, offset: int) -> int:
    """Where the batch that contains `offset`, or the next one, begins; the size of the segment if there is none."""
    position = segment.position_of(offset)
    return segment.size if position is None else position


def bounded_length(
    segment: Segment, position: int, first_size: int, length: int, max_bytes: int, at_least_one: bool
) -> int:
    """How many of the `length` bytes from `position` on to return: `max_bytes`, or the first batch alone if it is
    longer, or 0. The size of the first batch is read from the file if it is not known (0)."""
    if not first_size:
        prefix = segment.file.pread(LENGTH_PREFIX.size, position)
        first_size = LENGTH_PREFIX.size + LENGTH_PREFIX.unpack(prefix)[1] if len(prefix) == LENGTH_PREFIX.size else 0
    if not BATCH_HEADER_BYTES <= first_size <= length:
        raise MalformedData(f"{segment.log_path}: no batch at {position}")
    if first_size <= max_bytes:
        return max_bytes
    return first_size if at_least_one else 0


def offset_after(segments: Segments, piece: Slice, offset: int, end_offset: int) -> int:
    """An offset after the slice, which was read from `offset`: the last one of the first indexed batch after it. It may
    be a little too high."""
    for place in range(segments.floor(offset), len(segments)):
        segment = segments.at(place)
        if segment.log_path == piece.file.path:
            found = segment.offset_index.first_from(piece.position + piece.length)
            next_base = segments.next_base(place)
            return found or (end_offset if next_base is None else next_base)
    return end_offset


def aborted_between(segments: Segments, offset: int, up_to: int) -> list[AbortedTxn]:
    """Those with records in offset..up_to-1, by first offset, as Kafka returns them."""
    found = []
    for segment in islice(segments, segments.floor(offset), None):
        found += segment.txn_index.overlapping(offset, up_to)
        if segment.txn_index.lists_all_begun_before(up_to):
            break
    return sorted(found, key=lambda txn: txn.first_offset)


def whole_batches(piece: Slice, up_to: int) -> list[tuple[int, BatchHeader]]:
    """Return the position and header of each batch of a slice that begins before the offset `up_to`, without the last
    one if the slice cuts it off. Raise StorageFault, MalformedData."""
    end = piece.position + piece.length
    found: list[tuple[int, BatchHeader]] = []
    for position, header in walk_headers(piece.file, piece.position, sys.maxsize):
        after = position + header.size_in_bytes
        if after > end or header.base_offset >= up_to:
            break
        found.append((position, header))
        if after == end:
            break
    return found
