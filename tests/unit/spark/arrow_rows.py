"""Record batches and Arrow rows as plain Python values, to be compared: columns, logs, and a slow decoder.

The slow decoder is built on `wire.records` alone and shares no line with the one under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from moldau.base.errors import MalformedData
from moldau.client.fetching.batches import Aborted
from moldau.spark.records.decode import FetchedRecords, decode
from moldau.wire.batch import MAGIC, read_header
from moldau.wire.compression import Compression
from moldau.wire.records import Record, build_batch, decode_records

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
TOPIC, PARTITION = "river", 3
OFFSET_END = (1 << 63) - 1


class Row(NamedTuple):
    record: Record
    timestamp_type: int


def fetched(
    log: bytes | bytearray, start: int = 0, end: int = OFFSET_END, aborted: Sequence[tuple[int, int]] = ()
) -> FetchedRecords:
    return FetchedRecords(
        TOPIC, PARTITION, memoryview(bytes(log)), start, end, [Aborted(first, each) for each, first in aborted]
    )


def decoded(what: FetchedRecords, check_crc: bool = True) -> list[Row]:
    return rows_of(decode(what, SCHEMA, check_crc))


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """All columns back into records. What is the same for all rows is checked on the way."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == SCHEMA
        assert batch.num_rows, "empty Arrow batches are not allowed"
        # As numbers: Python's dates end before the year 10000, records need not.
        microseconds = batch["timestamp"].cast(pa.int64()).to_pylist()
        columns = [batch[name].to_pylist() for name in SCHEMA.names if name != "timestamp"]
        for key, value, topic, partition, offset, kind, headers, time in zip(*columns, microseconds, strict=True):
            assert (topic, partition) == (TOPIC, PARTITION)
            assert time % 1000 == 0
            pairs = tuple((header["key"], header["value"]) for header in headers)
            rows.append(Row(Record(offset, time // 1000, key, value, pairs), kind))
    return rows


def slowly_decoded(log: bytes | bytearray) -> list[Row]:
    """All rows of the whole batches in a log without transactions."""
    rows: list[Row] = []
    position = 0
    while len(log) - position > 16:
        size = 12 + int.from_bytes(log[position + 8 : position + 12], "big", signed=True)
        if log[position + 16] != MAGIC:
            raise MalformedData("another magic")
        if size > len(log) - position:
            break
        header = read_header(log, position)
        if not header.is_control:
            records = decode_records(log[position : position + size], header)
            rows += (Row(record, int(header.is_log_append_time)) for record in records)
        position += size
    return rows


def plain_log(batches: Iterable[Sequence[Record]], compression: Compression = Compression.NONE) -> bytes:
    """Batches one after the other, offsets in line from 0 on."""
    log, offset = bytearray(), 0
    for records in batches:
        log += build_batch(records, base_offset=offset, compression=compression)
        offset += len(records)
    return bytes(log)
