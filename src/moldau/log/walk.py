"""Iterates over the batches of a .log file without decoding records: their headers, or whole batches.

Lengths found on disk are checked against the size of the file. Nothing here writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from moldau.base.errors import MalformedData
from moldau.log.files import File
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, LENGTH_PREFIX, MAGIC, BatchHeader

_STEP = struct.Struct(">qi11xi")
"""Base offset, batch length, last offset delta: all that finding an offset needs."""

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
        inside = position - piece_start
        if len(piece) - inside < BATCH_HEADER_BYTES:
            piece, piece_start, inside = file.pread(min(PIECE_BYTES, end - position), position), position, 0
            if len(piece) < BATCH_HEADER_BYTES:
                raise MalformedData(f"{file.path}: {end - position} bytes at {position} are too few for a batch")
        header = BatchHeader._make(BATCH_HEADER.unpack_from(piece, inside))
        size = LENGTH_PREFIX.size + header.batch_length
        if size < BATCH_HEADER_BYTES or size > end - position or header.magic != MAGIC:
            raise MalformedData(f"{file.path}: no batch at {position}")
        yield position, header
        position += size


def walk_batches(file: File, position: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """(header, the whole batch) of every batch from `position` up to `end`. The caller checks CRCs."""
    read_bytes = WHOLE_PIECE_BYTES
    while position < end:
        piece = memoryview(file.pread(min(read_bytes, end - position), position))
        inside, read_bytes = 0, 0
        while len(piece) - inside >= BATCH_HEADER_BYTES:
            header = BatchHeader._make(BATCH_HEADER.unpack_from(piece, inside))
            size = LENGTH_PREFIX.size + header.batch_length
            if size < BATCH_HEADER_BYTES or size > end - position - inside or header.magic != MAGIC:
                raise MalformedData(f"{file.path}: no batch at {position + inside}")
            if size > len(piece) - inside:
                read_bytes = size
                break
            yield header, piece[inside : inside + size]
            inside += size
        if not inside and not read_bytes:
            raise MalformedData(f"{file.path}: {end - position} bytes at {position} are too few for a batch")
        position += inside
        read_bytes = max(read_bytes, WHOLE_PIECE_BYTES)


def find_offset(
    file: File, position: int, end: int, offset: int, expected_last: int | None = None
) -> tuple[int, int, int] | None:
    """(position, base offset, size) of the first batch from `position` on that reaches `offset`; None if none does.

    `expected_last` is the first batch's last offset according to the index; MalformedData if it differs. This repeats
    `walk_headers` with fewer fields, because every fetch outside the remembered batches does it.
    """
    step = _STEP.unpack_from
    while position < end:
        piece = file.pread(min(PIECE_BYTES, end - position), position)
        inside, last_inside = 0, len(piece) - BATCH_HEADER_BYTES
        if last_inside < 0:
            raise MalformedData(f"{file.path}: {end - position} bytes at {position} are too few for a batch")
        while inside <= last_inside:
            base_offset, batch_length, last_offset_delta = step(piece, inside)
            if expected_last is not None:
                if base_offset + last_offset_delta != expected_last:
                    raise MalformedData(f"{file.path}: the batch at {position} does not match the offset index")
                expected_last = None
            if base_offset + last_offset_delta >= offset:
                return position + inside, base_offset, LENGTH_PREFIX.size + batch_length
            if batch_length < BATCH_HEADER_BYTES - LENGTH_PREFIX.size:
                raise MalformedData(f"{file.path}: no batch at {position + inside}")
            inside += LENGTH_PREFIX.size + batch_length
        position += inside
    return None
