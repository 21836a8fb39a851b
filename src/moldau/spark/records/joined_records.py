"""Opens batches: checks CRCs, decompresses records, and joins the records of several batches in one buffer.

Joining them lets one call decode all rows of a fetch, however small its batches are. A body is what follows a batch's
header: its records, decompressed. Uncompressed records are not copied: their
batches are already in one buffer, with headers between them. The size opened at one time is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.columns.record_starts import record_starts
from moldau.columns.varints import Bytes, Mask, Numbers
from moldau.spark.records.batches import Batch
from moldau.wire.batch import BATCH_HEADER_BYTES, BatchHeader, has_valid_crc
from moldau.wire.compression import decompress

OPENED_BYTES_MAX: Final = 256 << 20
"""Bytes of records opened at one time. One more batch may be open meanwhile, which `decompress` bounds."""
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two lengths, a header count: one byte each. Used to check a record count."""


class BatchColumns(NamedTuple):
    """Header fields of several batches, one entry for each batch."""

    base_offsets: Numbers
    last_offset_deltas: Numbers
    base_timestamps: Numbers
    max_timestamps: Numbers
    is_log_append_time: Mask

    @classmethod
    def of(cls, headers: Sequence[BatchHeader]) -> BatchColumns:
        return cls(
            np.array([header.base_offset for header in headers], np.int64),
            np.array([header.last_offset_delta for header in headers], np.int64),
            np.array([header.base_timestamp for header in headers], np.int64),
            np.array([header.max_timestamp for header in headers], np.int64),
            np.array([header.is_log_append_time for header in headers], np.bool_),
        )


class JoinedRecords(NamedTuple):
    """The records of several batches, none of them empty, in one buffer."""

    data: Bytes
    starts: Numbers
    """Where each record begins: a guess until it is verified that the record ends at its limit."""
    limits: Numbers
    """Where each record must end: where the next one begins, or at the end of its batch."""
    batch_of: Numbers
    """The batch of each record, as an index into the columns of batches."""
    batches: BatchColumns


class _Opened(NamedTuple):
    batch: Batch
    body: Buffer
    starts: Numbers


def open_batches(batches: Iterable[Batch], records: memoryview, check_crcs: bool) -> Iterator[JoinedRecords]:
    """Yield the records of these batches of `records`, of as many batches together as the bound allows."""
    together: list[_Opened] = []
    size = 0
    for batch in batches:
        opened = _open(batch, check_crcs)
        if not opened.starts.size:  # compaction keeps the header of a producer's last batch
            continue
        if together and size + len(opened.body) > OPENED_BYTES_MAX:
            yield _join(together, records)
            together, size = [], 0
        together.append(opened)
        size += len(opened.body)
    if together:
        yield _join(together, records)


def _open(batch: Batch, check_crcs: bool) -> _Opened:
    header = batch.header
    if check_crcs and not has_valid_crc(batch.view):
        raise batch.malformed("the CRC does not match")
    body: Buffer = batch.view[BATCH_HEADER_BYTES:]
    if batch.is_compressed:
        try:
            body = decompress(header.compression, body)
        except MalformedData as error:
            raise batch.malformed(error) from error
    if not 0 <= header.record_count <= len(body) // RECORD_BYTES_MIN:
        raise batch.malformed(f"{header.record_count} records cannot be in {len(body)} bytes")
    if not header.record_count and len(body):
        raise batch.malformed(f"{len(body)} bytes of records, but no record")
    try:
        # Not later for all batches at once: the bytes of this one are still in the processor's cache.
        starts = record_starts(np.frombuffer(body, np.uint8), header.record_count)
    except IndexError:
        raise batch.malformed("a record ends beyond the batch") from None
    return _Opened(batch, body, starts)


def _join(together: Sequence[_Opened], records: memoryview) -> JoinedRecords:
    data, begins = _shared_buffer(together, records)
    counts = [opened.starts.size for opened in together]
    batch_of = np.repeat(np.arange(len(together)), counts)
    starts = np.concatenate([opened.starts for opened in together])
    starts += begins[batch_of]
    limits = np.empty_like(starts)
    limits[:-1] = starts[1:]
    limits[np.cumsum(counts) - 1] = begins + [len(opened.body) for opened in together]
    return JoinedRecords(data, starts, limits, batch_of, BatchColumns.of([opened.batch.header for opened in together]))


def _shared_buffer(together: Sequence[_Opened], records: memoryview) -> tuple[Bytes, Numbers]:
    """Return (a buffer with all bodies, where each of them begins in it)."""
    positions = np.array([opened.batch.position for opened in together], np.int64)
    begin, end = int(positions[0]), int(positions[-1]) + len(together[-1].batch.view)
    is_plain = not any(opened.batch.is_compressed for opened in together)
    # The range also contains unselected batches between them: with many of those, a copy is better.
    if is_plain and (len(together) == 1 or end - begin <= 2 * OPENED_BYTES_MAX):
        begin += BATCH_HEADER_BYTES
        return np.frombuffer(records[begin:end], np.uint8), positions + BATCH_HEADER_BYTES - begin
    joined = together[0].body if len(together) == 1 else b"".join(opened.body for opened in together)
    sizes = np.array([len(opened.body) for opened in together], np.int64)
    return np.frombuffer(joined, np.uint8), np.cumsum(sizes) - sizes
