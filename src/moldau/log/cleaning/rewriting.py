"""What stays of a piece, as bytes: batches that lost nothing as they are, the others built anew around what is left.

A batch that is built anew keeps its place: base offset, last offset, leader epoch, producer and sequence. Its records
keep their bytes, unless it gets a delete horizon: that stands where the base timestamp was, and every timestamp, which
counts from there, is written anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from moldau.columns.varints import Mask, Numbers, read
from moldau.log.cleaning.pieces import Piece
from moldau.log.cleaning.retention import BatchFate
from moldau.log.cleaning.rows import Rows, rows_of
from moldau.log.cleaning.target import Written
from moldau.wire.batch import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    stamp_crc,
)
from moldau.wire.compression import Buffer, Compression, compress
from moldau.wire.records import append_varint

_KIND_BITS = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class _Plan(NamedTuple):
    """One entry for each batch of the piece that the rows tell of."""

    is_whole: Mask
    is_rebuilt: Mask
    is_header: Mask
    gets_horizon: Mask
    kept: Numbers
    """Records that stay."""


def rewritten(piece: Piece, rows: Rows, kept: Mask, fate: BatchFate, horizon_ms: int) -> tuple[Written, int]:
    """What is to be written of the batches that `rows` tell of, and how many records that is."""
    plan = _plan(piece, rows, kept, fate)
    first = rows.batches.start
    sizes = piece.sizes[first : rows.batches.stop].copy()
    youngest = piece.headers["max_timestamp"][first : rows.batches.stop].astype(np.int64)
    parts = _whole_runs(piece, plan, first)
    rebuilt = np.flatnonzero(plan.is_rebuilt)
    if rebuilt.size:
        piece.check_crcs(rebuilt + first)
    for place in rebuilt.tolist():
        horizon = horizon_ms if plan.gets_horizon[place] else None
        batch = _rebuilt(piece, rows, kept, first + place, horizon)
        sizes[place], youngest[place] = len(batch), read_header(batch).max_timestamp
        parts.append((place, batch))
    for place in np.flatnonzero(plan.is_header).tolist():
        sizes[place] = BATCH_HEADER_BYTES
        parts.append((place, _header_alone(read_header(piece.batch(first + place)))))
    parts.sort(key=lambda part: part[0])
    stays = plan.is_whole | plan.is_rebuilt | plan.is_header
    content = b"".join([part for _, part in parts])
    last_offsets = piece.last_offsets[first : rows.batches.stop]
    return Written(content, sizes[stays], last_offsets[stays], youngest[stays]), int(plan.kept.sum())


def _plan(piece: Piece, rows: Rows, kept: Mask, fate: BatchFate) -> _Plan:
    first, count = rows.batches.start, len(rows.batches)
    here = slice(first, rows.batches.stop)
    stays = np.bincount(rows.batch_of[kept] - first, minlength=count)
    has_tombstone = np.bincount(rows.batch_of[kept & rows.is_tombstone] - first, minlength=count) > 0
    record_counts = piece.record_counts[here]
    is_control = piece.is_control[here]
    stays = np.where(is_control & ~fate.is_discarded[here], record_counts, stays)
    gets_horizon = (has_tombstone | (fate.is_spent_marker[here] & is_control)) & (piece.delete_horizons[here] < 0)
    is_gone = stays == 0
    is_whole = ~is_gone & (stays == record_counts) & ~gets_horizon
    return _Plan(is_whole, ~is_gone & ~is_whole, is_gone & fate.keeps_header[here], gets_horizon, stays)


def _whole_runs(piece: Piece, plan: _Plan, first: int) -> list[tuple[int, Buffer]]:
    """Batches that stay as they are, those side by side as one."""
    edges = np.flatnonzero(np.diff(plan.is_whole.view(np.int8), prepend=0, append=0))
    begins, lasts = edges[::2], edges[1::2] - 1
    starts = piece.starts[begins + first].tolist()
    ends = (piece.starts[lasts + first] + piece.sizes[lasts + first]).tolist()
    view = memoryview(piece.content)
    return [(place, view[start:end]) for place, start, end in zip(begins.tolist(), starts, ends, strict=True)]


def _header_alone(header: BatchHeader) -> bytearray:
    """What is kept for the sake of sequences and offsets."""
    emptied = header._replace(
        batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size,
        attributes=header.attributes & _KIND_BITS,
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return _sealed(emptied, b"")


def _sealed(header: BatchHeader, payload: Buffer) -> bytearray:
    assert header.magic == MAGIC
    batch = bytearray(BATCH_HEADER.pack(*header))
    batch += payload
    stamp_crc(memoryview(batch))
    return batch


def _rebuilt(piece: Piece, rows: Rows, kept: Mask, index: int, horizon_ms: int | None) -> bytearray:
    header = read_header(piece.batch(index))
    if header.is_control:
        assert horizon_ms is not None, "a marker stays as it is until it gets a horizon"
        rows = rows_of(piece, index)
        kept = np.ones(rows.starts.size, np.bool_)
    mine = slice(int(np.searchsorted(rows.batch_of, index)), int(np.searchsorted(rows.batch_of, index, side="right")))
    stays = np.flatnonzero(kept[mine]) + mine.start
    deltas, behind = read(rows.data, rows.timestamps_at[stays], bits=64)
    timestamps = header.base_timestamp + deltas
    base_timestamp, attributes = header.base_timestamp, header.attributes
    body: Buffer
    if horizon_ms is None:
        body = _joined(rows, kept, mine)
    else:
        base_timestamp, attributes = horizon_ms, attributes | DELETE_HORIZON_BIT
        body = _restamped(rows, stays, behind, timestamps - horizon_ms)
    payload = compress(Compression.from_id(attributes & CODEC_MASK), body)
    max_timestamp = header.max_timestamp if header.is_log_append_time else int(timestamps.max())
    return _sealed(
        header._replace(
            batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size + len(payload),
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=stays.size,
        ),
        payload,
    )


def _joined(rows: Rows, kept: Mask, mine: slice) -> bytes:
    """The records that stay, byte for byte."""
    edges = np.flatnonzero(np.diff(kept[mine].view(np.int8), prepend=0, append=0)) + mine.start
    view = rows.data.data
    begins, ends = rows.starts[edges[::2]].tolist(), rows.limits[edges[1::2] - 1].tolist()
    return b"".join([view[begin:end] for begin, end in zip(begins, ends, strict=True)])


def _restamped(rows: Rows, stays: Numbers, behind: Numbers, deltas: Numbers) -> bytearray:
    """The records that stay, with other timestamp deltas: length, attributes, delta, and the rest as it was."""
    body, view = bytearray(), rows.data.data
    columns = (rows.timestamps_at[stays] - 1, behind, rows.limits[stays], deltas)
    for attributes_at, rest, limit, delta in zip(*(column.tolist() for column in columns), strict=True):
        stamp = bytearray(view[attributes_at : attributes_at + 1])
        append_varint(stamp, delta)
        append_varint(body, len(stamp) + limit - rest)
        body += stamp
        body += view[rest:limit]
    return body
