"""The headers of all rows as one Arrow column: list<struct<key: string, value: binary>>.

In a record: the number of headers, then for each a key in UTF-8 and a value that may be null, both as fields. A record
without headers has an empty list, not null: null lists are slow on the way from Spark to Python.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from moldau.base.errors import MalformedData
from moldau.columns.fields import Fields, read_fields
from moldau.columns.varints import BadRow, Bytes, Numbers, read, require
from moldau.spark.records.fields import binary_column
from moldau.wire.records import read_varint

HEADER_BYTES_MIN: Final = 2
"""Two lengths. Used to check a header count."""
ROWS_AT_ONCE_MIN: Final = 32
"""If fewer rows than this have a further header, reading them one by one is cheaper than all at once."""


def skip_headers(data: Bytes, at: Numbers, limits: Numbers) -> None:
    """Check only the number of headers, if the column is not requested: they end where the record ends."""
    counts, at = _read_counts(data, at, limits)
    require((counts > 0) | (at == limits), "bytes are left after the last header")


def headers_column(data: Bytes, at: Numbers, limits: Numbers, kind: pa.ListType) -> pa.Array:
    """Decode the headers that begin at `at` and must end exactly at `limits`."""
    counts, at = _read_counts(data, at, limits)
    header_starts = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=header_starts[1:])
    fields = _read_all(data, at, limits, 2 * header_starts)
    names = _names(data, fields.every_second(0), header_starts)
    values = binary_column(data, fields.every_second(1))
    pair = kind.value_type
    pairs = pa.StructArray.from_arrays([names, values], fields=[pair.field(0), pair.field(1)])
    return pa.ListArray.from_arrays(pa.array(header_starts.astype(np.int32)), pairs, type=kind)


def _read_counts(data: Bytes, at: Numbers, limits: Numbers) -> tuple[Numbers, Numbers]:
    counts, at = read(data, at)
    fits = (counts >= 0) & (at <= limits) & (counts <= (limits - at) // HEADER_BYTES_MIN)
    require(fits, "a header count that is negative or more than its bytes can hold")
    return counts, at


def _read_all(data: Bytes, at: Numbers, limits: Numbers, field_starts: Numbers) -> Fields:
    """Read keys and values in order; row i has those from field_starts[i] up to field_starts[i + 1].

    The first field of every row is read at once, then the second of those rows that have one, and so on.
    """
    total = int(field_starts[-1])
    fields = Fields(np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.bool_))
    rows = np.arange(at.size)
    slots, last = field_starts[:-1], field_starts[1:]
    while True:
        is_done = slots == last
        if is_done.any():
            if not (at[is_done] == limits[is_done]).all():
                raise BadRow(int(rows[is_done & (at != limits)][0]), "bytes are left after the last header")
            rows, at, limits, slots, last = (array[~is_done] for array in (rows, at, limits, slots, last))
        if rows.size < ROWS_AT_ONCE_MIN:
            break
        try:
            part = read_fields(data, at, limits)
        except BadRow as bad:
            raise BadRow(int(rows[bad.row]), bad.what) from None
        fields.starts[slots], fields.ends[slots], fields.is_null[slots] = part
        at, slots = part.ends, slots + 1
    for row, *one in zip(rows.tolist(), at.tolist(), limits.tolist(), slots.tolist(), last.tolist(), strict=True):
        _read_rest(data, fields, row, *one)
    return fields


def _read_rest(data: Bytes, fields: Fields, row: int, begin: int, limit: int, first_slot: int, end_slot: int) -> None:
    """Read one row's remaining fields one by one into the slots."""
    body, position = data[begin:limit].tobytes(), 0
    for slot in range(first_slot, end_slot):
        try:
            length, position = read_varint(body, position)
        except MalformedData as error:
            raise BadRow(row, str(error)) from None
        if not -1 <= length <= len(body) - position:
            raise BadRow(row, "a field ends beyond its record")
        fields.is_null[slot] = length < 0
        fields.starts[slot] = begin + position
        position += max(length, 0)
        fields.ends[slot] = begin + position
    if position != len(body):
        raise BadRow(row, "bytes are left after the last header")


def _names(data: Bytes, keys: Fields, header_starts: Numbers) -> pa.Array:
    def row_of(header: int) -> int:
        return int(np.searchsorted(header_starts, header, side="right")) - 1

    if keys.is_null.any():
        raise BadRow(row_of(int(np.argmax(keys.is_null))), "a header without a key")
    names = binary_column(data, keys)
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = next(index for index, name in enumerate(names) if not _is_utf8(name.as_py()))
        raise BadRow(row_of(wrong), "a header's key is not UTF-8") from None


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
