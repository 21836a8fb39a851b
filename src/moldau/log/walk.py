"""Iterates over the batches of a .log file without decoding records: their headers, or whole batches.

Lengths found on disk are checked against the end of what is to be read. Nothing here writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from moldau.base.errors import MalformedData
from moldau.log.files import File
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, LENGTH_PREFIX, MAGIC, BatchHeader

_OFFSETS = struct.Struct(">qi4xb6xi")
"""Base offset, batch length, magic, last offset delta: all that finding an offset needs."""

PIECE_BYTES = 8 << 10
"""Two index intervals: one read is mostly enough to get from an index entry to the requested batch."""
WHOLE_PIECE_BYTES = 1 << 20
"""Read size where everything is read."""


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch from `position`, where a batch must begin, up to `end`.

    Raises MalformedData where the bytes are not a whole batch; nothing is skipped.
    """
    piece, piece_start = b"", position
    while position < end:
        at = position - piece_start
        if len(piece) - at < BATCH_HEADER_BYTES:
            piece, piece_start, at = file.pread(min(PIECE_BYTES, end - position), position), position, 0
            if len(piece) < BATCH_HEADER_BYTES:
                raise _too_short(file, position, len(piece), end)
        header = BatchHeader._make(BATCH_HEADER.unpack_from(piece, at))
        size = LENGTH_PREFIX.size + header.batch_length
        if size < BATCH_HEADER_BYTES or size > end - position or header.magic != MAGIC:
            raise MalformedData(f"{file.path}: no batch at {position}")
        yield position, header
        position += size


def walk_batches(file: File, position: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """(header, the whole batch) of every batch from `position` up to `end`. The caller checks CRCs."""
    read_bytes = WHOLE_PIECE_BYTES
    while position < end:
        expected = min(read_bytes, end - position)
        piece = memoryview(file.pread(expected, position))
        at, read_bytes = 0, 0
        while len(piece) - at >= BATCH_HEADER_BYTES:
            header = BatchHeader._make(BATCH_HEADER.unpack_from(piece, at))
            size = LENGTH_PREFIX.size + header.batch_length
            if size < BATCH_HEADER_BYTES or size > end - position - at or header.magic != MAGIC:
                raise MalformedData(f"{file.path}: no batch at {position + at}")
            if size > len(piece) - at:
                read_bytes = size
                break
            yield header, piece[at : at + size]
            at += size
        if len(piece) < expected:
            raise _too_short(file, position, len(piece), end)
        if not at and not read_bytes:
            raise _too_short(file, position, len(piece), end)
        position += at
        read_bytes = max(read_bytes, WHOLE_PIECE_BYTES)


def find_offset(
    file: File, position: int, end: int, offset: int, expected_last: int | None = None
) -> tuple[int, int, int] | None:
    """(position, base offset, size) of the first batch from `position` on that reaches `offset`; None if none does.

    `expected_last` is the first batch's last offset according to the index; MalformedData if it differs, or if the
    bytes are not a whole batch. This repeats `walk_headers` with fewer fields: every fetch that is not served by
    `recent_positions` or an exact index entry does it.
    """
    offsets = _OFFSETS.unpack_from
    while position < end:
        piece = file.pread(min(PIECE_BYTES, end - position), position)
        at, last_header_at = 0, len(piece) - BATCH_HEADER_BYTES
        if last_header_at < 0:
            raise _too_short(file, position, len(piece), end)
        while at <= last_header_at:
            base_offset, batch_length, magic, last_offset_delta = offsets(piece, at)
            if expected_last is not None:
                if base_offset + last_offset_delta != expected_last:
                    raise MalformedData(f"{file.path}: the batch at {position} does not match the offset index")
                expected_last = None
            size = LENGTH_PREFIX.size + batch_length
            if size < BATCH_HEADER_BYTES or size > end - position - at or magic != MAGIC:
                raise MalformedData(f"{file.path}: no batch at {position + at}")
            if base_offset + last_offset_delta >= offset:
                return position + at, base_offset, size
            at += size
        position += at
    return None


def _too_short(file: File, position: int, read_bytes: int, end: int) -> MalformedData:
    """Return the error for a read at `position` that got too few bytes, less than a piece."""
    if position + read_bytes < end:
        # Reading again would get no more. Such a file was truncated by somebody else.
        return MalformedData(f"{file.path}: ends at {position + read_bytes} instead of {end}")
    return MalformedData(f"{file.path}: {read_bytes} bytes at {position} are too few for a batch")
