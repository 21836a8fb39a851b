"""Evaluates a view over a run of its source's batches: bytes in, bytes out. Only workers and simulations import it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from moldau.base.errors import MalformedData
from moldau.columns.varints import BadRow
from moldau.log.cleaning.pieces import PADDING, Piece, batch_starts
from moldau.log.cleaning.rows import read_rows
from moldau.views.definition import ViewDefinition
from moldau.views.engine import Engine, EngineFailed, Shown
from moldau.views.field_ranges import FieldKey, Value, is_short, widen
from moldau.views.jobs import Evaluated, Matching
from moldau.views.records import Records, records_of, slots, taken
from moldau.views.rewriting import ShownBatches, changed_records, kept_records

RESULT_BYTES_ALLOWED: Final = 16 << 20
RESULT_FACTOR: Final = 4
"""A result has at most so many times the bytes of the run, or RESULT_BYTES_ALLOWED if that is more: the broker keeps
it in memory."""


def evaluate(
    engine: Engine, definition: ViewDefinition, content: bytes | bytearray, partition: int, size: int | None = None
) -> Evaluated:
    """Return what the view shows of the whole batches in `content`, or in its first `size` bytes. `content` begins with
    a whole batch; an incomplete one at its end is ignored. The result holds no reference to `content`. Raise
    MalformedData or EngineFailed."""
    size = len(content) if size is None else size
    bytes_max = max(RESULT_BYTES_ALLOWED, RESULT_FACTOR * size)
    piece = _piece(content, size)
    shown = ShownBatches(piece)
    shown.add_controls()
    seen = unreadable = 0
    ranges: dict[FieldKey, tuple[Value, Value] | None] = {}
    for records, result in _results(engine, definition, piece, partition):
        seen += records.offsets.size
        unreadable += result.unreadable
        widen(ranges, result.ranges)
        written = _written(definition, records, result.rows, result.values)
        shown.add(records.batch_of[result.rows], written, definition.changes_records)
        if shown.bytes > bytes_max:
            raise EngineFailed(f"the view shows more than {bytes_max >> 20} MiB of {size:,} bytes of its source")
    batches, positions, last_offsets = shown.content()
    return Evaluated(
        int(piece.base_offsets[0]),
        int(piece.last_offsets[-1]) + 1,
        batches,
        positions=positions,
        last_offsets=last_offsets,
        seen=seen,
        shown=shown.records,
        unreadable=unreadable,
        holds_batches=shown.holds_batches,
        has_controls=bool(piece.is_control.any()),
        ranges=tuple((key, bounds) for key, bounds in ranges.items() if is_short(bounds)),
    )


def matching_offsets(engine: Engine, definition: ViewDefinition, content: bytes, partition: int) -> Matching:
    """Return which records of the whole batches in `content` a view would show. Raise as `evaluate`."""
    results = _results(engine, definition, _piece(content, len(content)), partition)
    found = [records.offsets[result.rows].astype(np.int64) for records, result in results]
    return Matching(np.concatenate(found).tobytes() if found else b"")


def _results(
    engine: Engine, definition: ViewDefinition, piece: Piece, partition: int
) -> Iterator[tuple[Records, Shown]]:
    """Yield the records of the data batches, some thousand at a time, and what is shown of them."""
    is_data = ~piece.is_control & (piece.record_counts != 0)
    piece.check_crcs(np.flatnonzero(is_data))
    if not is_data.any():
        return
    for rows in read_rows(piece, is_data):
        if not rows.offsets.size:
            continue
        records = records_of(rows)
        try:
            result = engine.run(definition, piece, records, partition)
        except BadRow as bad:
            raise MalformedData(f"the record at offset {int(records.offsets[bad.row])}: {bad.what}") from None
        except EngineFailed as failed:
            first, last = int(records.offsets[0]), int(records.offsets[-1])
            raise EngineFailed(f"{failed} in offsets {first} to {last}") from None
        yield records, result


def _piece(content: bytes | bytearray, size: int) -> Piece:
    starts, end = batch_starts(content, size)
    if end > size and starts:
        end = starts.pop()
    if not starts:
        raise MalformedData("no whole batch")
    piece = Piece(content if len(content) - end >= len(PADDING) else content + PADDING, starts, end)
    piece.check("the log")
    return piece


def _written(definition: ViewDefinition, records: Records, rows: np.ndarray, values: pa.Array | None) -> pa.Array:
    if not definition.changes_records or not rows.size:
        return kept_records(records, rows)
    return changed_records(records, rows, values, _keys(definition, records, rows), definition.keeps_headers)


def _keys(definition: ViewDefinition, records: Records, rows: np.ndarray) -> pa.Array | None:
    """The new keys of these rows; None if they stay."""
    if definition.key == "keep":
        return None
    if definition.key == "null":
        return pa.nulls(rows.size, pa.binary())
    is_null = records.keys.is_null[rows]
    keys = taken(slots(records.data, records.keys.starts[rows], records.keys.ends[rows]), np.arange(rows.size), is_null)
    hashed = [None if key is None else hashlib.sha256(key).hexdigest().encode() for key in keys.to_pylist()]
    return pa.array(hashed, pa.binary())
