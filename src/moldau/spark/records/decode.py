"""Decodes record batches of a Fetch into the connector's Arrow columns, thousands of rows at a time.

Pure: bytes in, pa.RecordBatch out. No byte is trusted: malformed data raises MalformedData with topic, partition and
base offset, as strictly as `wire.records` does. Columns that are not requested are not decoded.

One record; every number but the attributes is a zigzag varint:

    length of the rest | attributes int8, 0 | timestamp delta | offset delta
    | key length, -1 null | key | value length, -1 null | value
    | header count | per header: key length, key in UTF-8, value length (-1 null), value
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from moldau.base.errors import MalformedData
from moldau.client.fetching.batches import malformed
from moldau.columns.fields import Fields, read_fields
from moldau.columns.varints import BadRow, Numbers, read, require
from moldau.spark.records.batches import FetchedRecords, batches_with_rows, next_offset
from moldau.spark.records.fields import binary_column
from moldau.spark.records.header_columns import headers_column, skip_headers
from moldau.spark.records.joined_records import BatchColumns, JoinedRecords, open_batches

ROWS_MAX: Final = 1 << 16
"""Rows decoded at once, so that intermediate results mostly stay in the processor's cache."""
BYTES_MAX: Final = 32 << 20
"""Bytes of records decoded at once, unless one record is larger: bounds the memory for an Arrow batch."""
MILLISECONDS_MAX: Final = ((1 << 63) - 1) // 1000
"""Spark's timestamps are microseconds in an int64. Larger timestamps are an error."""


def decode(fetched: FetchedRecords, schema: pa.Schema, check_crc: bool = True) -> Iterator[pa.RecordBatch]:
    """Yield the requested rows in the columns of `schema`: any of the connector's, in any order, of its Arrow types."""
    try:
        batches, problem = batches_with_rows(fetched)
        for joined in open_batches(batches, fetched.records, check_crc):
            yield from _decode_joined(joined, fetched, schema)
        if problem is not None:
            raise problem
    except MalformedData as error:
        raise MalformedData(f"{fetched.topic}-{fetched.partition}, {error}") from error


def _decode_joined(joined: JoinedRecords, fetched: FetchedRecords, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for rows in _cuts(joined):
        try:
            records = _read_records(joined, rows)
            batch = _columns(records, joined, fetched, schema)
        except BadRow as bad:
            batch_index = joined.batch_of[rows.start + bad.row]
            raise malformed(int(joined.batches.base_offsets[batch_index]), bad.what) from None
        yield from _in_range(batch, records.offsets, fetched)


def _cuts(joined: JoinedRecords) -> Iterator[slice]:
    first = 0
    while first < joined.starts.size:
        in_bytes = int(np.searchsorted(joined.limits, joined.starts[first] + BYTES_MAX, side="right"))
        last = max(first + 1, min(first + ROWS_MAX, in_bytes))
        yield slice(first, last)
        first = last


def _in_range(batch: pa.RecordBatch, offsets: Numbers, fetched: FetchedRecords) -> Iterator[pa.RecordBatch]:
    """Cut rows outside the requested range: only the first and last batch of a fetch have any, at their edges."""
    kept = np.flatnonzero((offsets >= fetched.start) & (offsets < fetched.end))
    if kept.size == offsets.size:
        yield batch
    elif kept.size and kept[-1] - kept[0] == kept.size - 1:
        yield batch.slice(int(kept[0]), kept.size)
    elif kept.size:
        yield batch.take(pa.array(kept))


# --- rows -------------------------------------------------------------------------------------------------------


class _Records(NamedTuple):
    """Parsed records: every array has an entry for each."""

    batch_of: Numbers
    """The record's batch, as an index into the columns of batches."""
    offsets: Numbers
    timestamp_deltas: Numbers
    keys: Fields
    values: Fields
    limits: Numbers
    """Where the record ends. Its headers are between the end of its value and this."""


def _read_records(joined: JoinedRecords, rows: slice) -> _Records:
    data, limits, batch_of = joined.data, joined.limits[rows], joined.batch_of[rows]
    length, at = read(data, joined.starts[rows])
    # This proves the guessed starts: the first is right, and each record ends where the next begins.
    require((length > 0) & (at + length == limits), "a record's length does not lead to the next record")
    timestamp_deltas, at = read(data, at + 1, bits=64)
    offset_deltas, at = read(data, at)
    last = joined.batches.last_offset_deltas[batch_of]
    require((offset_deltas >= 0) & (offset_deltas <= last), "an offset delta beyond the batch's last one")
    keys = read_fields(data, at, limits)
    values = read_fields(data, keys.ends, limits)
    offsets = joined.batches.base_offsets[batch_of] + offset_deltas
    return _Records(batch_of, offsets, timestamp_deltas, keys, values, limits)


# --- columns ----------------------------------------------------------------------------------------------------


def _columns(records: _Records, joined: JoinedRecords, fetched: FetchedRecords, schema: pa.Schema) -> pa.RecordBatch:
    if "headers" not in schema.names:
        skip_headers(joined.data, records.values.ends, records.limits)
    columns = [_column(field.name, field.type, records, joined, fetched) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(
    name: str, kind: pa.DataType, records: _Records, joined: JoinedRecords, fetched: FetchedRecords
) -> pa.Array:
    count = records.offsets.size
    match name:
        case "key":
            return binary_column(joined.data, records.keys)
        case "value":
            return binary_column(joined.data, records.values)
        case "topic":
            return pa.repeat(fetched.topic, count)
        case "partition":
            return pa.repeat(pa.scalar(fetched.partition, pa.int32()), count)
        case "offset":
            return pa.array(records.offsets)
        case "timestamp":
            return pa.array(1000 * _timestamps(records, joined.batches)).view(kind)
        case "timestampType":
            return pa.array(joined.batches.is_log_append_time.astype(np.int32)[records.batch_of])
        case "headers":
            return headers_column(joined.data, records.values.ends, records.limits, kind)
    raise AssertionError(f"the connector has no column {name}")


def _timestamps(records: _Records, batches: BatchColumns) -> Numbers:
    """Return the timestamps in milliseconds. With LogAppendTime the deltas do not count: the broker sets one timestamp
    for the whole batch."""
    is_stamped = batches.is_log_append_time
    base = np.where(is_stamped, batches.max_timestamps, batches.base_timestamps)
    # Check the base first: if it is in bounds, a sum that overflows is never back in bounds.
    base_in_bounds = (base >= -MILLISECONDS_MAX) & (base <= MILLISECONDS_MAX)
    deltas = records.timestamp_deltas
    if is_stamped.any():
        deltas = np.where(is_stamped[records.batch_of], 0, deltas)
    timestamps = base[records.batch_of] + deltas
    in_bounds = (timestamps >= -MILLISECONDS_MAX) & (timestamps <= MILLISECONDS_MAX)
    require(in_bounds & base_in_bounds[records.batch_of], "a timestamp beyond what Spark can hold")
    return timestamps


__all__ = ["FetchedRecords", "decode", "next_offset"]
