"""Returns the bytes that remain of a piece.

A batch that keeps all records and gets no delete horizon is copied; one that loses some, or gets a horizon, is rebuilt;
one that loses all is dropped or keeps only its header.

A rebuilt batch keeps its base offset, last offset, leader epoch, producer and sequence. Its records keep their bytes,
unless the batch gets a delete horizon: that replaces the base timestamp, so every timestamp delta changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from moldau.base.buffers import Buffer
from moldau.columns.varints import Bytes, Mask, Numbers, read
from moldau.log.cleaning.compaction_rules import BatchDecisions
from moldau.log.cleaning.pieces import Piece
from moldau.log.cleaning.rows import Rows, read_batch_rows
from moldau.log.cleaning.segment_writer import BatchesToWrite
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
from moldau.wire.compression import Compression, compress
from moldau.wire.records import append_varint

_KIND_BITS: Final = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class _Plan(NamedTuple):
    """One entry for each batch that the rows cover."""

    is_unchanged: Mask
    is_rebuilt: Mask
    keeps_only_header: Mask
    gets_horizon: Mask
    kept_counts: Numbers
    """Number of records that stay."""


def rewrite(
    piece: Piece, rows: Rows, kept: Mask, decisions: BatchDecisions, horizon_ms: int
) -> tuple[BatchesToWrite, int]:
    """Return what to write of the batches that `rows` cover, and the number of records in it."""
    plan = _plan(piece, rows, kept, decisions)
    first, span = rows.batches.start, slice(rows.batches.start, rows.batches.stop)
    sizes, max_timestamps = piece.sizes[span].copy(), piece.max_timestamps[span].copy()
    parts = _unchanged_runs(piece, plan, first)
    changed: list[tuple[int, Buffer]] = []
    piece.check_crcs(np.flatnonzero(plan.is_rebuilt | plan.keeps_only_header) + first)
    for place in np.flatnonzero(plan.keeps_only_header).tolist():
        changed.append((place, _empty_batch(read_header(piece.batch(first + place)))))
    rebuilt = np.flatnonzero(plan.is_rebuilt)
    if rebuilt.size:
        changed += _rebuild_batches(piece, rows, kept, plan, rebuilt, horizon_ms)
    for place, batch in changed:
        sizes[place], max_timestamps[place] = len(batch), read_header(batch).max_timestamp
    if changed:
        parts = sorted(parts + changed, key=itemgetter(0))
    batch_stays = plan.is_unchanged | plan.is_rebuilt | plan.keeps_only_header
    content = b"".join([part for _, part in parts])
    written = BatchesToWrite(
        content, sizes[batch_stays], piece.last_offsets[span][batch_stays], max_timestamps[batch_stays]
    )
    return written, int(plan.kept_counts.sum())


def _plan(piece: Piece, rows: Rows, kept: Mask, decisions: BatchDecisions) -> _Plan:
    first, count = rows.batches.start, len(rows.batches)
    span = slice(first, rows.batches.stop)
    kept_counts = np.bincount(rows.batch_of[kept] - first, minlength=count)
    has_tombstone = np.bincount(rows.batch_of[kept & rows.is_tombstone] - first, minlength=count) > 0
    record_counts = piece.record_counts[span]
    is_control = piece.is_control[span]
    kept_counts = np.where(is_control & ~decisions.is_discarded[span], record_counts, kept_counts)
    may_expire = has_tombstone | decisions.is_obsolete_marker[span]
    gets_horizon = may_expire & (piece.delete_horizons[span] < 0)
    is_emptied = kept_counts == 0
    is_unchanged = ~is_emptied & (kept_counts == record_counts) & ~gets_horizon
    return _Plan(
        is_unchanged, ~is_emptied & ~is_unchanged, is_emptied & decisions.keeps_header[span], gets_horizon, kept_counts
    )


def _unchanged_runs(piece: Piece, plan: _Plan, first: int) -> list[tuple[int, Buffer]]:
    """Return (place, bytes) of each run of consecutive unchanged batches."""
    edges = np.flatnonzero(np.diff(plan.is_unchanged.view(np.int8), prepend=0, append=0))
    begins, lasts = edges[::2], edges[1::2] - 1
    starts = piece.starts[begins + first].tolist()
    ends = (piece.starts[lasts + first] + piece.sizes[lasts + first]).tolist()
    view = memoryview(piece.content)
    return [(place, view[start:end]) for place, start, end in zip(begins.tolist(), starts, ends, strict=True)]


def _empty_batch(header: BatchHeader) -> bytearray:
    """Return the batch without its records. Its header keeps sequences and offsets."""
    emptied = header._replace(
        batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size,
        attributes=header.attributes & _KIND_BITS,
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return _batch_with_crc(emptied, b"")


def _batch_with_crc(header: BatchHeader, payload: Buffer) -> bytearray:
    assert header.magic == MAGIC
    batch = bytearray(BATCH_HEADER.pack(*header))
    batch += payload
    stamp_crc(memoryview(batch))
    return batch


def _rebuild_batches(
    piece: Piece, rows: Rows, kept: Mask, plan: _Plan, rebuilt: Numbers, horizon_ms: int
) -> Iterator[tuple[int, bytearray]]:
    first = rows.batches.start
    is_control = piece.is_control[rebuilt + first]
    for place in rebuilt[is_control].tolist():
        # A marker is rebuilt only to get a delete horizon.
        marker = read_batch_rows(piece, first + place)
        remaining = _RemainingRecords.of(
            marker, np.ones(marker.starts.size, np.bool_), piece, np.array([first + place])
        )
        yield place, _rebuild_batch(piece, remaining, 0, horizon_ms)
    places = rebuilt[~is_control]
    record_stays = kept & plan.is_rebuilt[rows.batch_of - first]
    remaining = _RemainingRecords.of(rows, record_stays, piece, places + first)
    for number, place in enumerate(places.tolist()):
        yield place, _rebuild_batch(piece, remaining, number, horizon_ms if plan.gets_horizon[place] else None)


class _RemainingRecords(NamedTuple):
    """The remaining records of the batches to rebuild, and where they are."""

    data: Bytes
    indexes: list[int]
    """Indexes of the batches in the piece."""
    row_edges: list[int]
    """The first row of each batch, and the end of the last."""
    max_timestamps: list[int]
    run_edges: list[int]
    """The first run of each batch, and the end of the last. A run is consecutive records that all stay."""
    run_begins: list[int]
    run_ends: list[int]
    attributes_at: Numbers
    """This and the columns below have an entry for each row."""
    after_timestamp: Numbers
    ends: Numbers
    timestamps: Numbers

    @classmethod
    def of(cls, rows: Rows, record_stays: Mask, piece: Piece, indexes: Numbers) -> _RemainingRecords:
        row_numbers = np.flatnonzero(record_stays)
        batch_of = rows.batch_of[row_numbers]
        deltas, after_timestamp = read(rows.data, rows.timestamps_at[row_numbers], bits=64)
        timestamps = piece.base_timestamps[batch_of] + deltas
        firsts = np.searchsorted(batch_of, indexes)
        continues_run = (np.diff(row_numbers) == 1) & (np.diff(batch_of) == 0)
        begins = np.flatnonzero(np.concatenate([[True], ~continues_run])) if row_numbers.size else row_numbers
        lasts = np.append(begins[1:], row_numbers.size) - 1 if row_numbers.size else row_numbers
        return cls(
            rows.data,
            indexes.tolist(),
            [*firsts.tolist(), row_numbers.size],
            np.maximum.reduceat(timestamps, firsts).tolist() if row_numbers.size else [],
            [*np.searchsorted(batch_of[begins], indexes).tolist(), begins.size],
            rows.starts[row_numbers[begins]].tolist(),
            rows.ends[row_numbers[lasts]].tolist(),
            rows.timestamps_at[row_numbers] - 1,
            after_timestamp,
            rows.ends[row_numbers],
            timestamps,
        )


def _rebuild_batch(piece: Piece, remaining: _RemainingRecords, number: int, horizon_ms: int | None) -> bytearray:
    """Rebuild one batch from its remaining records, with a delete horizon if one is given."""
    header = read_header(piece.batch(remaining.indexes[number]))
    attributes, base_timestamp = header.attributes, header.base_timestamp
    body: Buffer
    if horizon_ms is None:
        body = _join_records(remaining, number)
    else:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, horizon_ms
        body = _restamp_records(remaining, number, horizon_ms)
    payload = compress(Compression.from_id(attributes & CODEC_MASK), body)
    return _batch_with_crc(
        header._replace(
            batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size + len(payload),
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else remaining.max_timestamps[number],
            record_count=remaining.row_edges[number + 1] - remaining.row_edges[number],
        ),
        payload,
    )


def _join_records(remaining: _RemainingRecords, number: int) -> bytes:
    """Return the bytes of the remaining records, unchanged."""
    runs = slice(remaining.run_edges[number], remaining.run_edges[number + 1])
    view = remaining.data.data
    return b"".join(
        [view[begin:end] for begin, end in zip(remaining.run_begins[runs], remaining.run_ends[runs], strict=True)]
    )


def _restamp_records(remaining: _RemainingRecords, number: int, base_timestamp: int) -> bytearray:
    """Return the remaining records with timestamp deltas from another base timestamp."""
    body, view = bytearray(), remaining.data.data
    batch_rows = slice(remaining.row_edges[number], remaining.row_edges[number + 1])
    deltas = remaining.timestamps[batch_rows] - base_timestamp
    columns = (
        remaining.attributes_at[batch_rows],
        remaining.after_timestamp[batch_rows],
        remaining.ends[batch_rows],
        deltas,
    )
    for attributes_at, rest, end, delta in zip(*(column.tolist() for column in columns), strict=True):
        prefix = bytearray(view[attributes_at : attributes_at + 1])
        append_varint(prefix, delta)
        append_varint(body, len(prefix) + end - rest)
        body += prefix
        body += view[rest:end]
    return body
