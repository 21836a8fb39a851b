"""Finds where records are missing between two segments, in the part of a log that recovery does not read.

A segment begins where the previous one ends, also in a compacted log: the cleaner keeps the last batch of what it
replaces. Only a gap between two batches that is too wide for an index is skipped by a new segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from moldau.base.errors import MalformedData
from moldau.log import layout
from moldau.log.files import Files
from moldau.log.offset_index import ENTRY_BYTES, OffsetIndex
from moldau.log.segment import RELATIVE_OFFSET_MAX, Segment
from moldau.log.walk import walk_headers


class Gap(NamedTuple):
    """The records from `start_offset` on, and below `end_offset`, are missing."""

    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"the records from offset {self.start_offset} to {self.end_offset - 1} are missing"


def follows_on(base_offset: int, end_offset: int) -> bool:
    """Return whether a segment with this base offset may follow one that ends at `end_offset`."""
    return base_offset == end_offset or base_offset - end_offset > RELATIVE_OFFSET_MAX


def find_gap(files: Files, segments: Sequence[Segment]) -> Gap | None:
    """Return the first gap between these segments. This reads little: the end of each but the last."""
    for segment, following in pairwise(segments):
        end_offset = _read_end(files, segment)
        segment.release()
        if end_offset < following.base_offset and not follows_on(following.base_offset, end_offset):
            return Gap(end_offset, following.base_offset)
    return None


def _read_end(files: Files, segment: Segment) -> int:
    """Return the offset after the last whole batch of a segment, read from the last entry of its offset index on."""
    end_offset = _walk_to_end(segment, _last_indexed_position(files, segment))
    if end_offset is None:  # the index does not match the log
        end_offset = _walk_to_end(segment, 0)
    return segment.base_offset if end_offset is None else end_offset


def _last_indexed_position(files: Files, segment: Segment) -> int:
    """Return the position in the last entry of the offset index, without reading all of it; 0 without an entry."""
    path = segment.path + layout.OFFSET_INDEX
    index_bytes = files.size(path) if files.exists(path) else 0
    if not index_bytes or index_bytes % ENTRY_BYTES:
        return 0
    entry = files.open(path).pread(ENTRY_BYTES, index_bytes - ENTRY_BYTES)
    return OffsetIndex(segment.base_offset, entry).last()[1]


def _walk_to_end(segment: Segment, position: int) -> int | None:
    """Return the offset after the last whole batch from `position` on; None if there is none."""
    end_offset = None
    with suppress(MalformedData):
        for _, header in walk_headers(segment.file, position, segment.size):
            end_offset = header.next_offset
    return end_offset
