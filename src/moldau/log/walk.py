"""Walking over the batches of a .log file without opening them: headers only, read in pieces.

Lengths found on disk are believed no further than the file reaches. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.base.errors import MalformedData
from moldau.log.files import File
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, LENGTH_PREFIX, MAGIC, BatchHeader

PIECE_BYTES = 8 << 10
"""Two index intervals: one read is mostly enough to get from an index entry to the batch wanted."""


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
