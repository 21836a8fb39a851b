"""The headers of all rows as one Arrow column: list<struct<key: string, value: binary>>.

In a record: the number of headers, then for each a key in UTF-8 and a value that may be null, both as fields. A record
without headers has an empty list and not null: nulls in lists cost Spark dearly on their way to Python.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from moldau.base.errors import MalformedData
from moldau.spark.fields import Fields, binary_column, read_fields
from moldau.spark.varints import BadRow, Bytes, Numbers, read, require
from moldau.wire.records import read_varint

HEADER_BYTES_MIN: Final = 2
"""Two lengths. Bounds a count before it is believed."""
ROWS_AT_ONCE_MIN: Final = 32
"""With fewer rows than this that have yet another header, they are cheaper to read one by one than all at once."""


def skip_headers(data: Bytes, at: Numbers, limits: Numbers) -> None:
    """Looks at the number of headers only: they end where the record ends, and nobody asked for them."""
    counts, at = _read_counts(data, at, limits)
    require((counts > 0) | (at == limits), "a record ends before its length says")


def headers_column(data: Bytes, at: Numbers, limits: Numbers, kind: pa.ListType) -> pa.Array:
    """The headers that begin at `at` and end, to the byte, at `limits`."""
    counts, at = _read_counts(data, at, limits)
    first = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    fields = _read_all(data, at, limits, 2 * first)
    names = _names(data, fields.every_second(0), first)
    values = binary_column(data, fields.every_second(1))
    pair = kind.value_type
    pairs = pa.StructArray.from_arrays([names, values], fields=[pair.field(0), pair.field(1)])
    return pa.ListArray.from_arrays(pa.array(first.astype(np.int32)), pairs, type=kind)


def _read_counts(data: Bytes, at: Numbers, limits: Numbers) -> tuple[Numbers, Numbers]:
    counts, at = read(data, at)
    fits = (counts >= 0) & (at <= limits) & (counts <= (limits - at) // HEADER_BYTES_MIN)
    require(fits, "more headers than its bytes can hold")
    return counts, at


def _read_all(data: Bytes, at: Numbers, limits: Numbers, first: Numbers) -> Fields:
    """Keys and values as they come; row i has those from first[i] up to first[i + 1].

    The first field of every row is read at once, then the second of those rows that have one, and so on.
    """
    total = int(first[-1])
    fields = Fields(np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.bool_))
    ends = at.copy()
    slots = first[:-1].copy()
    rows = np.flatnonzero(first[1:] > slots)
    while rows.size >= ROWS_AT_ONCE_MIN:
        try:
            part = read_fields(data, ends[rows], limits[rows])
        except BadRow as bad:
            raise BadRow(int(rows[bad.row]), bad.what) from None
        for whole, read_now in zip(fields, part, strict=True):
            whole[slots[rows]] = read_now
        ends[rows] = part.ends
        slots[rows] += 1
        rows = rows[slots[rows] < first[rows + 1]]
    for row in rows.tolist():
        ends[row] = _read_rest(data, int(ends[row]), int(limits[row]), fields, range(slots[row], first[row + 1]), row)
    require(ends == limits, "a record ends before its length says")
    return fields


def _read_rest(data: Bytes, position: int, limit: int, fields: Fields, slots: range, row: int) -> int:
    """One row's fields one by one, into their slots; the position behind the last."""
    begin, body, position = position, data[position:limit].tobytes(), 0
    for slot in slots:
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
    return begin + position


def _names(data: Bytes, keys: Fields, first: Numbers) -> pa.Array:
    def row_of(header: int) -> int:
        return int(np.searchsorted(first, header, side="right")) - 1

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
