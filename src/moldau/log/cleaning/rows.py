"""The records of some batches by the column: where they are, their offsets and keys, which have no value.

Every length is checked against the bytes that are there; what breaks the format is MalformedData.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from moldau.base.errors import MalformedData
from moldau.columns.record_starts import RUN_HOPED_FOR, record_starts, walk_long, walk_short
from moldau.columns.varints import BadRow, Bytes, Mask, Numbers, read, require, skip
from moldau.log.cleaning.key_map import Keys
from moldau.log.cleaning.opened import Bodies, Opened
from moldau.log.cleaning.pieces import Piece
from moldau.wire.batch import BATCH_HEADER_BYTES, CODEC_MASK
from moldau.wire.compression import Compression

RECORD_BYTES_MIN: Final = 7
_NULL: Final = 1
"""-1 as a zigzag varint."""


class Rows(NamedTuple):
    """The records of batches first <= index < last of a piece, as far as those were asked for."""

    data: Bytes
    batch_of: Numbers
    """The batch of each record, as an index into the piece."""
    starts: Numbers
    limits: Numbers
    timestamps_at: Numbers
    """Where each record's timestamp delta is."""
    offsets: Numbers
    keys: Keys
    has_key: Mask
    is_tombstone: Mask
    batches: range
    """Of the piece: all that these rows tell of, wanted or not."""


def open_rows(piece: Piece, wanted: Mask) -> Iterator[Rows]:
    """The rows of the batches that are wanted, in pieces that cover all batches of the piece. One is good until the
    next: decompressed records take the place of those before."""
    chosen = np.flatnonzero(wanted)
    if not piece.is_compressed[chosen].any():
        begins = piece.starts[chosen] + BATCH_HEADER_BYTES
        bodies = Bodies(piece.content, piece.data, chosen, begins, piece.starts[chosen] + piece.sizes[chosen])
        yield _rows(piece, bodies, range(piece.starts.size))
        return
    begin, opened = 0, Opened()
    codecs = (piece.attributes[chosen] & CODEC_MASK).tolist()
    for index, codec in zip(chosen.tolist(), codecs, strict=True):
        body = piece.batch(index)[BATCH_HEADER_BYTES:]
        if not opened.put(index, Compression.from_id(codec), body):
            yield _rows(piece, opened.take(), range(begin, index))
            begin = index
            opened.put(index, Compression.from_id(codec), body)
    yield _rows(piece, opened.take(), range(begin, piece.starts.size))


def rows_of(piece: Piece, index: int) -> Rows:
    """The rows of one batch."""
    wanted = np.zeros(piece.starts.size, np.bool_)
    wanted[index] = True
    (rows,) = open_rows(piece, wanted)
    return rows


def _rows(piece: Piece, bodies: Bodies, batches: range) -> Rows:
    content, data, chosen, begins, ends = bodies
    counts = piece.record_counts[chosen]
    if ((counts < 0) | (counts * RECORD_BYTES_MIN > ends - begins) | ((counts == 0) & (ends > begins))).any():
        raise MalformedData(f"a batch at {int(piece.base_offsets[batches.start])}… cannot hold its records")
    try:
        starts = _starts(content, data, begins, ends, counts)
        return _read(piece, data, chosen, starts, ends, counts, batches)
    except (BadRow, IndexError) as bad:
        raise MalformedData(f"batches at offset {int(piece.base_offsets[batches.start])}…: {bad}") from None


def _read(
    piece: Piece, data: Bytes, chosen: Numbers, starts: Numbers, ends: Numbers, counts: Numbers, batches: range
) -> Rows:
    batch_of = np.repeat(chosen, counts)
    limits = np.empty_like(starts)
    limits[:-1] = starts[1:]
    last_rows = np.cumsum(counts)[counts > 0] - 1
    limits[last_rows] = ends[counts > 0]
    length, at = read(data, starts)
    # With this the guessed starts are proven: the first one is at its place, and each record ends where it must.
    require((length > 0) & (at + length == limits), "a record's length does not lead to the next record")
    timestamps_at = at + 1
    deltas, at = read(data, skip(data, timestamps_at))
    base_offsets, last_offsets = piece.base_offsets[batch_of], piece.last_offsets[batch_of]
    offsets = base_offsets + deltas
    require((deltas >= 0) & (offsets <= last_offsets), "an offset delta beyond the batch's last one")
    lengths, at = read(data, at)
    has_key = lengths >= 0
    lengths = np.maximum(lengths, 0)
    values_at = at + lengths
    require(values_at < limits, "a key ends beyond its record")
    is_tombstone = data[values_at] == _NULL
    return Rows(
        data, batch_of, starts, limits, timestamps_at, offsets, Keys(data, at, lengths), has_key, is_tombstone, batches
    )


def _starts(content: bytes | bytearray, data: Bytes, begins: Numbers, ends: Numbers, counts: Numbers) -> Numbers:
    """Where each record begins, a guess until it is proven. Batches of one record, which are many where producers do
    not wait, tell it without a look."""
    if (counts == 1).all():
        return begins
    starts = np.empty(int(counts.sum()), np.int64)
    is_small = counts <= RUN_HOPED_FOR
    starts[np.repeat(is_small, counts)] = _walked(content, data, begins[is_small], counts[is_small])
    first = np.cumsum(counts) - counts
    for index in np.flatnonzero(~is_small).tolist():
        begin, count, to = int(begins[index]), int(counts[index]), int(first[index])
        starts[to : to + count] = record_starts(data[begin : ends[index]], count) + begin
    return starts


def _walked(content: bytes | bytearray, data: Bytes, begins: Numbers, counts: Numbers) -> Numbers:
    """Of many batches at once: to ask numpy for each of them would take longer than to walk."""
    try:
        starts = _walk_all(content, begins, counts, walk_short)
        is_long = (data[starts] >= 0x80) & (data[starts + 1] >= 0x80)
    except IndexError:
        is_long = np.ones(1, np.bool_)
    return _walk_all(content, begins, counts, walk_long) if is_long.any() else starts


def _walk_all(
    content: bytes | bytearray,
    begins: Numbers,
    counts: Numbers,
    walk: Callable[[bytes | bytearray, int, int], list[int]],
) -> Numbers:
    starts: list[int] = []
    for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):
        if count:
            starts.append(begin)
            if count > 1:
                starts += walk(content, begin, count - 1)
    return np.array(starts, np.int64)
