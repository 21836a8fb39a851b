"""The records of some batches as Arrow columns: what a query reads. Only workers import this module."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from moldau.base.errors import MalformedData
from moldau.columns.fields import Fields, read_fields
from moldau.columns.varints import BadRow, Bytes, Mask, Numbers, read, require
from moldau.log.cleaning.pieces import Piece
from moldau.log.cleaning.rows import Rows
from moldau.wire.batch import LOG_APPEND_TIME_BIT
from moldau.wire.records import read_varint

STRING_VIEW_WORDS: Final = 4
INLINE_BYTES: Final = 12


class Records(NamedTuple):
    """Records of data batches, in order; every array has an entry for each."""

    data: Bytes
    batch_of: Numbers
    starts: Numbers
    ends: Numbers
    timestamps_at: Numbers
    offsets: Numbers
    keys: Fields
    values: Fields


def records_of(rows: Rows) -> Records:
    """Find the values too. Raise MalformedData for a record that breaks the format."""
    try:
        key_starts = rows.keys.starts
        keys = Fields(key_starts, key_starts + rows.keys.lengths, ~rows.has_key)
        values = read_fields(rows.data, keys.ends, rows.ends)
    except BadRow as bad:
        raise MalformedData(f"the record at offset {int(rows.offsets[bad.row])}: {bad.what}") from None
    return Records(rows.data, rows.batch_of, rows.starts, rows.ends, rows.timestamps_at, rows.offsets, keys, values)


def slots(data: Bytes, starts: Numbers, ends: Numbers) -> pa.Array:
    """The bytes from each start to its end as the even slots of an array over the data, which is not copied: in Arrow a
    slot begins where the one before it ends, so what lies between is in the odd ones. The positions must increase."""
    count = starts.size
    edges = np.empty(2 * count + 1, np.int32)
    edges[:-1:2] = starts
    edges[1::2] = ends
    edges[-1] = ends[-1] if count else 0
    return pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(data)])


def taken(array: pa.Array, rows: Numbers, is_null: Mask | None = None) -> pa.Array:
    """The even slots of these rows, copied one behind the other."""
    return array.take(pa.array((2 * rows).astype(np.int32), mask=is_null))


def text_column(data: Bytes, fields: Fields) -> tuple[pa.Array, Mask | None]:
    """Fields as texts, and which of them are no UTF-8 (None if all are): those are null."""
    count = fields.starts.size
    is_null = fields.is_null if fields.is_null.any() else None
    column = taken(slots(data, fields.starts, fields.ends), np.arange(count), is_null)
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        is_unreadable = np.array([not _is_utf8(value.as_py()) for value in column], np.bool_)
        column = taken(slots(data, fields.starts, fields.ends), np.arange(count), fields.is_null | is_unreadable)
        return column.cast(pa.string()), is_unreadable


def unchecked_texts(data: Bytes, fields: Fields, rows: Numbers, is_null: Mask) -> pa.Array:
    """The fields of these rows as texts that still lie in the data: nothing is copied. Nobody has checked that they are
    UTF-8; for a parser of JSON that does.

    Arrow's view of a text is its length and, up to 12 bytes, itself; else its first 4 bytes, a buffer and a position
    in it.
    """
    starts = fields.starts[rows]
    lengths = fields.ends[rows] - starts
    views = np.zeros((rows.size, STRING_VIEW_WORDS), np.uint32)
    views[:, 0] = lengths
    words: Numbers = np.ndarray((data.size - 3,), "<u4", data, strides=(1,))
    views[:, 1] = words[np.minimum(starts, words.size - 1)]
    views[:, 3] = starts
    short = np.flatnonzero(lengths <= INLINE_BYTES)
    if short.size:
        positions = starts[short, None] + np.arange(INLINE_BYTES)
        inline = data.take(positions, mode="clip")
        inline[np.arange(INLINE_BYTES) >= lengths[short, None]] = 0
        views[short, 1:] = inline.view("<u4")
    nulls = is_null[rows]
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    return pa.Array.from_buffers(pa.string_view(), rows.size, [validity, pa.py_buffer(views), pa.py_buffer(data)])


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def timestamps(piece: Piece, records: Records) -> Numbers:
    """In milliseconds. With LogAppendTime the broker sets one for the whole batch."""
    deltas, _ = read(records.data, records.timestamps_at, bits=64)
    is_stamped = (piece.attributes & LOG_APPEND_TIME_BIT != 0)[records.batch_of]
    stamped, base = piece.max_timestamps[records.batch_of], piece.base_timestamps[records.batch_of]
    return np.where(is_stamped, stamped, base + deltas)


def header_column(records: Records, name: str) -> pa.Array:
    """The last header of this name of each record; null if there is none or if it is no UTF-8."""
    counts, at = read(records.data, records.values.ends)
    require((counts >= 0) & (at <= records.ends), "a record without a number of headers")
    wanted = name.encode()
    found: list[str | None] = [None] * counts.size
    for row in np.flatnonzero(counts).tolist():
        body = records.data[int(at[row]) : int(records.ends[row])].tobytes()
        found[row] = _header_in(body, int(counts[row]), wanted, row)
    return pa.array(found, pa.string())


def _header_in(body: bytes, count: int, wanted: bytes, row: int) -> str | None:
    position, found = 0, None
    try:
        for _ in range(min(count, len(body))):
            length, position = read_varint(body, position)
            if length < 0:
                raise BadRow(row, "a header without a name")
            key, position = body[position : position + length], position + length
            length, position = read_varint(body, position)
            if length < -1 or position > len(body):
                raise BadRow(row, "a header ends beyond its record")
            value, position = body[position : position + max(length, 0)], position + max(length, 0)
            if key == wanted:
                found = None if length < 0 else value
    except MalformedData as wrong:
        raise BadRow(row, str(wrong)) from None
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError:
        return None
