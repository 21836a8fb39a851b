"""Walking over the batches of a .log file without opening them, read in pieces: their headers, or all of them.

Lengths found on disk are believed no further than the file reaches. Nothing here writes.
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
"""Two index intervals: one read is mostly enough to get from an index entry to the batch wanted."""
WHOLE_PIECE_BYTES = 1 << 20
"""Where everything is wanted, a read should be worth its call."""


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch from `position`, which must be one's start, up to `end`.

    MalformedData where the bytes stop being whole batches: the walk never steps over what it cannot explain.
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
    """(header, the whole batch) of every batch from `position` up to `end`. CRCs are the caller's to check."""
    wanted = WHOLE_PIECE_BYTES
    while position < end:
        piece = memoryview(file.pread(min(wanted, end - position), position))
        inside, wanted = 0, 0
        while len(piece) - inside >= BATCH_HEADER_BYTES:
            header = BatchHeader._make(BATCH_HEADER.unpack_from(piece, inside))
            size = LENGTH_PREFIX.size + header.batch_length
            if size < BATCH_HEADER_BYTES or size > end - position - inside or header.magic != MAGIC:
                raise MalformedData(f"{file.path}: no batch at {position + inside}")
            if size > len(piece) - inside:
                wanted = size
                break
            yield header, piece[inside : inside + size]
            inside += size
        if not inside and not wanted:
            raise MalformedData(f"{file.path}: {end - position} bytes at {position} are too few for a batch")
        position += inside
        wanted = max(wanted, WHOLE_PIECE_BYTES)


def find_offset(
    file: File, position: int, end: int, offset: int, expected_last: int | None = None
) -> tuple[int, int, int] | None:
    """(position, base offset, size) of the first batch from `position` on that reaches `offset`; None if none does.

    `expected_last` is what an index says of the first batch; MalformedData if that is another one. The same walk as
    above with less said of each batch: it is taken on every fetch that meets no remembered batch.
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
                    raise MalformedData(f"{file.path}: another batch than expected at {position}")
                expected_last = None
            if base_offset + last_offset_delta >= offset:
                return position + inside, base_offset, LENGTH_PREFIX.size + batch_length
            if batch_length < BATCH_HEADER_BYTES - LENGTH_PREFIX.size:
                raise MalformedData(f"{file.path}: no batch at {position + inside}")
            inside += LENGTH_PREFIX.size + batch_length
        position += inside
    return None
