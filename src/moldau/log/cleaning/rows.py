"""The records of some batches as columns: positions, offsets, keys, and whether they are tombstones.

Every length is checked against the bytes that are there; MalformedData is raised if one does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from moldau.base.errors import MalformedData
from moldau.base.limits import DECOMPRESSED_BYTES_MAX
from moldau.columns.record_starts import RUN_HOPED_FOR, begins_with_run, record_starts
from moldau.columns.side_by_side import starts_of_batches
from moldau.columns.varints import BadRow, Bytes, Mask, Numbers, read, require, skip
from moldau.log.cleaning.decompression import BatchBodies, DecompressionBuffer
from moldau.log.cleaning.key_map import Keys
from moldau.log.cleaning.pieces import Piece
from moldau.wire.batch import BATCH_HEADER_BYTES, CODEC_MASK
from moldau.wire.compression import Compression

RECORD_BYTES_MIN: Final = 7
SIDE_BY_SIDE_MAX: Final = 4096
"""A batch with more records is never walked together with others; a smaller one is, unless it begins with a run of
records of one size."""
_NULL: Final = 1
"""-1 as a zigzag varint."""


class Rows(NamedTuple):
    """The records of the selected batches in a range of a piece's batches."""

    data: Bytes
    batch_of: Numbers
    """The batch of each record, as an index into the piece."""
    starts: Numbers
    ends: Numbers
    timestamps_at: Numbers
    """Where each record's timestamp delta is."""
    offsets: Numbers
    keys: Keys
    has_key: Mask
    is_tombstone: Mask
    batches: range
    """The batches of the piece that these rows cover, selected or not."""


def read_rows(piece: Piece, is_selected: Mask, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Rows]:
    """Yield the rows of the selected batches in parts that cover all batches of the piece. Each is valid until the
    next one: decompressed records share one buffer. Raise DecompressedTooLarge for a batch that expands too much."""
    selected = np.flatnonzero(is_selected)
    if not piece.is_compressed[selected].any():
        begins = piece.starts[selected] + BATCH_HEADER_BYTES
        bodies = BatchBodies(
            piece.content, piece.data, selected, begins, piece.starts[selected] + piece.sizes[selected]
        )
        yield _parse_rows(piece, bodies, range(piece.starts.size))
        return
    begin, buffer = 0, DecompressionBuffer(int(piece.sizes[selected].sum()), decompressed_bytes_max)
    codecs = (piece.attributes[selected] & CODEC_MASK).tolist()
    for index, codec in zip(selected.tolist(), codecs, strict=True):
        body = piece.batch(index)[BATCH_HEADER_BYTES:]
        if not buffer.put(index, Compression.from_id(codec), body):
            yield _parse_rows(piece, buffer.take(), range(begin, index))
            begin = index
            buffer.put(index, Compression.from_id(codec), body)
    yield _parse_rows(piece, buffer.take(), range(begin, piece.starts.size))


def read_batch_rows(piece: Piece, index: int) -> Rows:
    """Return the rows of one batch."""
    is_selected = np.zeros(piece.starts.size, np.bool_)
    is_selected[index] = True
    (rows,) = read_rows(piece, is_selected)
    return rows


def _parse_rows(piece: Piece, bodies: BatchBodies, batches: range) -> Rows:
    content, data, selected, begins, ends = bodies
    counts = piece.record_counts[selected]
    if ((counts < 0) | (counts * RECORD_BYTES_MIN > ends - begins) | ((counts == 0) & (ends > begins))).any():
        raise MalformedData(
            f"batches from offset {int(piece.base_offsets[batches.start])} on: record count and size do not fit"
        )
    try:
        starts = _guess_starts(content, data, begins, ends, counts)
        return _parse_columns(piece, data, selected, starts, ends, counts, batches)
    except (BadRow, IndexError) as bad:
        raise MalformedData(f"batches from offset {int(piece.base_offsets[batches.start])} on: {bad}") from None


def _parse_columns(
    piece: Piece, data: Bytes, selected: Numbers, starts: Numbers, batch_ends: Numbers, counts: Numbers, batches: range
) -> Rows:
    batch_of = np.repeat(selected, counts)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    last_rows = np.cumsum(counts)[counts > 0] - 1
    ends[last_rows] = batch_ends[counts > 0]
    length, at = read(data, starts)
    # This proves the guessed starts: the first is right, and each record ends where the next begins.
    require((length > 0) & (at + length == ends), "a record's length does not lead to the next record")
    timestamps_at = at + 1
    deltas, at = read(data, skip(data, timestamps_at))
    base_offsets, last_offsets = piece.base_offsets[batch_of], piece.last_offsets[batch_of]
    offsets = base_offsets + deltas
    require((deltas >= 0) & (offsets <= last_offsets), "an offset delta beyond the batch's last one")
    lengths, at = read(data, at)
    has_key = lengths >= 0
    lengths = np.maximum(lengths, 0)
    values_at = at + lengths
    require(values_at < ends, "a key ends beyond its record")
    is_tombstone = data[values_at] == _NULL
    return Rows(
        data, batch_of, starts, ends, timestamps_at, offsets, Keys(data, at, lengths), has_key, is_tombstone, batches
    )


def _guess_starts(content: bytes | bytearray, data: Bytes, begins: Numbers, ends: Numbers, counts: Numbers) -> Numbers:
    """Return where each record probably begins; `_parse_columns` verifies it. Batches of one record, which are frequent
    without linger, need no search."""
    if (counts == 1).all():
        return begins
    starts = np.empty(int(counts.sum()), np.int64)
    is_walked_together = counts <= RUN_HOPED_FOR
    for index in np.flatnonzero((counts > RUN_HOPED_FOR) & (counts <= SIDE_BY_SIDE_MAX)).tolist():
        is_walked_together[index] = not begins_with_run(data[begins[index] : ends[index]])
    starts[np.repeat(is_walked_together, counts)] = starts_of_batches(
        content, data, begins[is_walked_together], counts[is_walked_together]
    )
    first = np.cumsum(counts) - counts
    for index in np.flatnonzero(~is_walked_together).tolist():
        begin, count, to = int(begins[index]), int(counts[index]), int(first[index])
        starts[to : to + count] = record_starts(data[begin : ends[index]], count) + begin
    return starts
