"""Encodes Arrow columns of keys, values, timestamps and headers into record batches for Produce requests.

Pure: Arrow in, bytes out, the same bytes as from `wire.records.build_batch`; `decode.py` describes a record's format.
Nothing is done row by row: numpy writes the numbers of all rows, then Arrow joins the parts of each row:

    numbers up to the key's length | key | value's length | value | number of headers | headers
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.base.errors import ErrorCode, KafkaError
from moldau.columns.varints import Numbers, Raw, put, sizes, zigzag
from moldau.wire.batch import (
    BATCH_HEADER_BYTES,
    LENGTH_PREFIX,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from moldau.wire.compression import Compression, compress
from moldau.wire.crc import crc32c

BATCH_LENGTH_MAX: Final = (1 << 31) - 1
_UNCOVERED: Final = struct.Struct(">qiibI")
_COVERED: Final = struct.Struct(">hiqqqhii")
"""A batch's header in two parts: up to the CRC, and what the CRC covers."""
NUMBER_BYTES_MAX: Final = 5
TIMESTAMP_BYTES_MAX: Final = 10


class EncodeColumns(NamedTuple):
    """The columns to encode. Keys and values: binary or string, also large types or slices; null is Kafka's null."""

    keys: pa.Array | None
    values: pa.Array
    timestamps: Numbers | int
    """Milliseconds, one for each row or the same for all."""
    headers: pa.ListArray | None = None
    """list<struct<key, value>>; null and the empty list both mean: no headers."""


class ProducerStamp(NamedTuple):
    """The producer's identity for deduplication; the sequence is that of the first record."""

    producer_id: int
    epoch: int
    base_sequence: int
    is_transactional: bool = False


def encode(
    columns: EncodeColumns,
    producer: ProducerStamp | None = None,
    compression: Compression = Compression.NONE,
    level: int | None = None,
) -> bytearray:
    """Encode all rows into one batch with base offset 0. KafkaError for rows that do not fit into a batch."""
    return encode_batches(columns, [(0, len(columns.values))], [producer], compression, level)[0]


def encode_batches(
    columns: EncodeColumns,
    limits: Sequence[tuple[int, int]],
    producers: Sequence[ProducerStamp | None],
    compression: Compression = Compression.NONE,
    level: int | None = None,
) -> list[bytearray]:
    """Encode one batch for each of these consecutive ranges of rows, like `encode`, but all at once.

    A call costs as much as hundreds of rows, so many small batches, such as of many partitions, share one call.
    """
    starts, ends = np.array(limits, np.int64).reshape(-1, 2).T
    _check(columns, starts, ends)
    counts = ends - starts
    timestamps = columns.timestamps
    if isinstance(timestamps, int):
        base_timestamps = max_timestamps = np.full(starts.size, timestamps, np.int64)
        deltas = np.zeros(len(columns.values), np.int64)
    else:
        base_timestamps, max_timestamps = timestamps[starts], np.maximum.reduceat(timestamps, starts)
        deltas = timestamps - np.repeat(base_timestamps, counts)
    records = _records(columns, deltas, np.arange(len(columns.values)) - np.repeat(starts, counts))
    data, offsets = _data(records), _offsets(records)
    bodies = [data[first:last] for first, last in zip(offsets[starts].tolist(), offsets[ends].tolist(), strict=True)]
    facts = zip(counts.tolist(), base_timestamps.tolist(), max_timestamps.tolist(), producers, strict=True)
    return [_batch(body, compression, level, *fact) for body, fact in zip(bodies, facts, strict=True)]


def _check(columns: EncodeColumns, starts: Numbers, ends: Numbers) -> None:
    """Assert what only a bug in the caller can break."""
    rows = len(columns.values)
    assert (starts < ends).all(), "a batch holds at least one record"
    assert [0, *ends.tolist()] == [*starts.tolist(), rows], "every row is in one batch"
    for column in (columns.keys, columns.headers):
        assert column is None or len(column) == rows, "as many keys and headers as values"
    assert isinstance(columns.timestamps, int) or columns.timestamps.size == rows, "as many timestamps as values"


def _batch(
    records: memoryview,
    compression: Compression,
    level: int | None,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer: ProducerStamp | None,
) -> bytearray:
    """Compress the records and add header and CRC."""
    body = compress(compression, records, level)
    if len(body) > BATCH_LENGTH_MAX - BATCH_HEADER_BYTES:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(body)} bytes of records are more than a batch can hold")
    stamp = producer or ProducerStamp(NO_PRODUCER_ID, -1, -1)
    attributes = compression | (TRANSACTIONAL_BIT if stamp.is_transactional else 0)
    covered = _COVERED.pack(
        attributes, count - 1, base_timestamp, max_timestamp,
        stamp.producer_id, stamp.epoch, stamp.base_sequence, count,
    )  # fmt: skip
    crc = crc32c(body, crc32c(covered))
    batch_length = BATCH_HEADER_BYTES - LENGTH_PREFIX.size + len(body)
    return bytearray().join((_UNCOVERED.pack(0, batch_length, -1, MAGIC, crc), covered, body))


def batch_limits(columns: EncodeColumns, max_bytes: int, cuts: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Ranges of rows that each fit into `max_bytes` uncompressed; a row that is too large has a range of its own.

    No range crosses one of the `cuts`: rows at which, say, another partition begins.
    """
    ends = np.cumsum(_row_bytes_max(columns))
    limits: list[tuple[int, int]] = []
    first, before = 0, 0
    for cut in (*(each for each in cuts if each), ends.size):
        while first < cut:
            last = int(np.searchsorted(ends, before + max_bytes - BATCH_HEADER_BYTES, side="right"))
            last = min(max(last, first + 1), cut)
            limits.append((first, last))
            first, before = last, int(ends[last - 1])
    return limits


def _row_bytes_max(columns: EncodeColumns) -> Numbers:
    """An upper bound on the size of each encoded row: varints count with their maximum size."""
    count = len(columns.values)
    fixed = 1 + 5 * NUMBER_BYTES_MAX + (1 if isinstance(columns.timestamps, int) else TIMESTAMP_BYTES_MAX)
    bound = np.full(count, fixed, np.int64)
    for column in (columns.keys, columns.values):
        if column is not None:
            bound += np.maximum(_lengths(_binary(column)), 0)
    if columns.headers is not None:
        counts, keys, values = _header_parts(columns.headers)
        ends = np.zeros(len(keys) + 1, np.int64)
        np.cumsum(np.maximum(_lengths(keys), 0) + np.maximum(_lengths(values), 0) + 2 * NUMBER_BYTES_MAX, out=ends[1:])
        bound += np.diff(ends[_boundaries(counts)])
    return bound


# --- records ----------------------------------------------------------------------------------------------------


def _records(columns: EncodeColumns, timestamp_deltas: Numbers, offset_deltas: Numbers) -> pa.Array:
    count = len(columns.values)
    values = _binary(columns.values)
    value_lengths = _lengths(values)
    keys = None if columns.keys is None else _binary(columns.keys)
    key_lengths = np.full(count, -1, np.int64) if keys is None else _lengths(keys)
    attributes = np.zeros(count, np.int64)
    head = [_measured(numbers) for numbers in (attributes, timestamp_deltas, offset_deltas, key_lengths)]
    middle = _measured(value_lengths)
    tail, tail_bytes = _headers(columns.headers)
    length = sum((varints.size for varints in head), middle.size + tail_bytes)
    length += np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    key_pieces = [] if keys is None else [keys]
    return _join(_number_column(_measured(length), *head), *key_pieces, _number_column(middle), values, *tail)


def _headers(headers: pa.ListArray | None) -> tuple[list[pa.Array | pa.Scalar], Numbers | int]:
    """Return (the last parts of each record: header count and headers, their size in bytes)."""
    if headers is None:
        return [pa.scalar(b"\0", pa.large_binary())], 1
    counts, keys, values = _header_parts(headers)
    if keys.null_count:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a header without a key")
    sizes_of = [_number_column(_measured(_lengths(column))) for column in (keys, values)]
    pairs = _join(sizes_of[0], keys, sizes_of[1], values)
    # The headers of a row are already contiguous: leave out the boundaries between them to join them.
    ends = _offsets(pairs)[_boundaries(counts)]
    together = _large_binary(ends, pairs.buffers()[2])
    measured = _measured(counts)
    return [_number_column(measured), together], measured.size + np.diff(ends)


def _header_parts(headers: pa.ListArray) -> tuple[Numbers, pa.Array, pa.Array]:
    """Return (number of headers of each row, all keys, all values). A null list has none."""
    counts = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    keys, values = headers.flatten().flatten()
    return counts, _binary(keys), _binary(values)


def _boundaries(counts: Numbers) -> Numbers:
    return np.concatenate(([0], np.cumsum(counts)))


# --- parts ------------------------------------------------------------------------------------------------------
# All of them are large_binary: Arrow joins arrays of one type only, and these cannot overflow at 2 GiB.


class _Varints(NamedTuple):
    """One number per row, and its encoded size."""

    raw: Raw
    size: Numbers


def _measured(numbers: Numbers) -> _Varints:
    raw = zigzag(numbers)
    return _Varints(raw, sizes(raw))


def _number_column(*columns: _Varints) -> pa.Array:
    """Encode several numbers per row, one after the other, into one column."""
    offsets = _boundaries(sum((varints.size for varints in columns[1:]), columns[0].size))
    data = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1]
    for varints in columns:
        at = put(data, at, *varints)
    return _large_binary(offsets, pa.py_buffer(data))


def _large_binary(offsets: Numbers, data: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.large_binary(), offsets.size - 1, [None, pa.py_buffer(offsets), data])


def _binary(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary())


def _lengths(column: pa.Array) -> Numbers:
    """Bytes in each slot, -1 for null."""
    lengths: Numbers = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    return lengths


def _offsets(column: pa.Array) -> Numbers:
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]


def _join(*pieces: pa.Array | pa.Scalar) -> pa.Array:
    separator = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(*pieces, separator, null_handling="replace", null_replacement=b"")


def _data(column: pa.Array) -> memoryview:
    return memoryview(column.buffers()[2])


__all__ = ["EncodeColumns", "ProducerStamp", "batch_limits", "encode"]
