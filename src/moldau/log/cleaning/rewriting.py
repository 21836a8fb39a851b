"""The remaining bytes of a piece: batches that keep all records unchanged, the others rebuilt from what is left.

A rebuilt batch keeps its base offset, last offset, leader epoch, producer and sequence. Its records keep their bytes,
unless the batch gets a delete horizon: that replaces the base timestamp, so every timestamp delta changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from moldau.columns.varints import Bytes, Mask, Numbers, read
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

_KIND_BITS: Final = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class _Plan(NamedTuple):
    """One entry for each batch that the rows cover."""

    is_whole: Mask
    is_rebuilt: Mask
    is_header: Mask
    gets_horizon: Mask
    kept: Numbers
    """Number of records that stay."""


def rewrite(piece: Piece, rows: Rows, kept: Mask, fate: BatchFate, horizon_ms: int) -> tuple[Written, int]:
    """Return (what to write of the batches that `rows` cover, the number of records in it)."""
    plan = _plan(piece, rows, kept, fate)
    first, span = rows.batches.start, slice(rows.batches.start, rows.batches.stop)
    sizes, youngest = piece.sizes[span].copy(), piece.max_timestamps[span].copy()
    parts = _whole_runs(piece, plan, first)
    changed: list[tuple[int, Buffer]] = []
    for place in np.flatnonzero(plan.is_header).tolist():
        changed.append((place, _header_alone(read_header(piece.batch(first + place)))))
    rebuilt = np.flatnonzero(plan.is_rebuilt)
    if rebuilt.size:
        piece.check_crcs(rebuilt + first)
        changed += _rebuilt(piece, rows, kept, plan, rebuilt, horizon_ms)
    for place, batch in changed:
        sizes[place], youngest[place] = len(batch), read_header(batch).max_timestamp
    if changed:
        parts = sorted(parts + changed, key=itemgetter(0))
    stays = plan.is_whole | plan.is_rebuilt | plan.is_header
    content = b"".join([part for _, part in parts])
    return Written(content, sizes[stays], piece.last_offsets[span][stays], youngest[stays]), int(plan.kept.sum())


def _plan(piece: Piece, rows: Rows, kept: Mask, fate: BatchFate) -> _Plan:
    first, count = rows.batches.start, len(rows.batches)
    span = slice(first, rows.batches.stop)
    stays = np.bincount(rows.batch_of[kept] - first, minlength=count)
    has_tombstone = np.bincount(rows.batch_of[kept & rows.is_tombstone] - first, minlength=count) > 0
    record_counts = piece.record_counts[span]
    is_control = piece.is_control[span]
    stays = np.where(is_control & ~fate.is_discarded[span], record_counts, stays)
    gets_horizon = (has_tombstone | (fate.is_spent_marker[span] & is_control)) & (piece.delete_horizons[span] < 0)
    is_gone = stays == 0
    is_whole = ~is_gone & (stays == record_counts) & ~gets_horizon
    return _Plan(is_whole, ~is_gone & ~is_whole, is_gone & fate.keeps_header[span], gets_horizon, stays)


def _whole_runs(piece: Piece, plan: _Plan, first: int) -> list[tuple[int, Buffer]]:
    """(place, bytes) of each run of consecutive unchanged batches."""
    edges = np.flatnonzero(np.diff(plan.is_whole.view(np.int8), prepend=0, append=0))
    begins, lasts = edges[::2], edges[1::2] - 1
    starts = piece.starts[begins + first].tolist()
    ends = (piece.starts[lasts + first] + piece.sizes[lasts + first]).tolist()
    view = memoryview(piece.content)
    return [(place, view[start:end]) for place, start, end in zip(begins.tolist(), starts, ends, strict=True)]


def _header_alone(header: BatchHeader) -> bytearray:
    """The batch without records: keeps sequences and offsets."""
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


def _rebuilt(
    piece: Piece, rows: Rows, kept: Mask, plan: _Plan, rebuilt: Numbers, horizon_ms: int
) -> Iterator[tuple[int, bytearray]]:
    first = rows.batches.start
    is_control = piece.is_control[rebuilt + first]
    for place in rebuilt[is_control].tolist():
        # A marker is rebuilt only to get a delete horizon.
        alone = rows_of(piece, first + place)
        left = _RemainingRecords.of(alone, np.ones(alone.starts.size, np.bool_), piece, np.array([first + place]))
        yield place, _batch(piece, left, 0, horizon_ms)
    places = rebuilt[~is_control]
    stays = kept & plan.is_rebuilt[rows.batch_of - first]
    left = _RemainingRecords.of(rows, stays, piece, places + first)
    for number, place in enumerate(places.tolist()):
        yield place, _batch(piece, left, number, horizon_ms if plan.gets_horizon[place] else None)


class _RemainingRecords(NamedTuple):
    """The remaining records of the batches to rebuild, and where they are."""

    data: Bytes
    indexes: list[int]
    """Indexes of the batches in the piece."""
    row_edges: list[int]
    """The first row of each batch, and the end of the last."""
    youngest: list[int]
    run_edges: list[int]
    """The first run of each batch. A run is consecutive records that all stay."""
    run_begins: list[int]
    run_ends: list[int]
    attributes_at: Numbers
    """This and the columns below have an entry for each row."""
    behind_timestamp: Numbers
    limits: Numbers
    timestamps: Numbers

    @classmethod
    def of(cls, rows: Rows, stays: Mask, piece: Piece, indexes: Numbers) -> _RemainingRecords:
        places = np.flatnonzero(stays)
        batch_of = rows.batch_of[places]
        deltas, behind = read(rows.data, rows.timestamps_at[places], bits=64)
        timestamps = piece.base_timestamps[batch_of] + deltas
        firsts = np.searchsorted(batch_of, indexes)
        goes_on = (np.diff(places) == 1) & (np.diff(batch_of) == 0)
        begins = np.flatnonzero(np.concatenate([[True], ~goes_on])) if places.size else places
        ends = np.append(begins[1:], places.size) - 1 if places.size else places
        return cls(
            rows.data,
            indexes.tolist(),
            [*firsts.tolist(), places.size],
            np.maximum.reduceat(timestamps, firsts).tolist() if places.size else [],
            [*np.searchsorted(batch_of[begins], indexes).tolist(), begins.size],
            rows.starts[places[begins]].tolist(),
            rows.limits[places[ends]].tolist(),
            rows.timestamps_at[places] - 1,
            behind,
            rows.limits[places],
            timestamps,
        )


def _batch(piece: Piece, left: _RemainingRecords, number: int, horizon_ms: int | None) -> bytearray:
    """Rebuild one batch from its remaining records, with a delete horizon if one is given."""
    header = read_header(piece.batch(left.indexes[number]))
    attributes, base_timestamp = header.attributes, header.base_timestamp
    body: Buffer
    if horizon_ms is None:
        body = _joined(left, number)
    else:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, horizon_ms
        body = _restamped(left, number, horizon_ms)
    payload = compress(Compression.from_id(attributes & CODEC_MASK), body)
    return _sealed(
        header._replace(
            batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size + len(payload),
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else left.youngest[number],
            record_count=left.row_edges[number + 1] - left.row_edges[number],
        ),
        payload,
    )


def _joined(left: _RemainingRecords, number: int) -> bytes:
    """The bytes of the remaining records, unchanged."""
    runs = slice(left.run_edges[number], left.run_edges[number + 1])
    view = left.data.data
    return b"".join([view[begin:end] for begin, end in zip(left.run_begins[runs], left.run_ends[runs], strict=True)])


def _restamped(left: _RemainingRecords, number: int, base_timestamp: int) -> bytearray:
    """The remaining records with timestamp deltas from another base timestamp."""
    body, view = bytearray(), left.data.data
    mine = slice(left.row_edges[number], left.row_edges[number + 1])
    deltas = left.timestamps[mine] - base_timestamp
    columns = (left.attributes_at[mine], left.behind_timestamp[mine], left.limits[mine], deltas)
    for attributes_at, rest, limit, delta in zip(*(column.tolist() for column in columns), strict=True):
        stamp = bytearray(view[attributes_at : attributes_at + 1])
        append_varint(stamp, delta)
        append_varint(body, len(stamp) + limit - rest)
        body += stamp
        body += view[rest:limit]
    return body
