"""Opens batches: checks CRCs, decompresses records, and joins the records of several batches in one buffer.

Joining them lets one call decode all rows of a fetch, however small its batches are. A body is what follows a batch's
header: its records, decompressed. Uncompressed records are not copied: their batches are already in one buffer, with
headers between them. The size opened at one time is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.columns.record_starts import record_starts
from moldau.columns.varints import Bytes, Mask, Numbers
from moldau.spark.records.batches import Batches
from moldau.wire.batch import BATCH_HEADER_BYTES, CRC_START
from moldau.wire.compression import Compression, decompress
from moldau.wire.crc import crc32c

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
    def of(cls, batches: Batches) -> BatchColumns:
        return cls(
            batches.numbers("base_offset"),
            batches.numbers("last_offset_delta"),
            batches.numbers("base_timestamp"),
            batches.numbers("max_timestamp"),
            batches.is_log_append_time,
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


class _Group:
    """Batches opened together, from the index `first` on, by their place in the group.

    A batch in neither dictionary has one record, and its body is in the fetched records.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.body_bytes = 0
        self.decompressed: dict[int, Buffer] = {}
        self.starts: dict[int, Numbers] = {}
        """Where the records of a batch start in its body."""

    def join(self, batches: Batches, records: memoryview) -> Iterator[JoinedRecords]:
        """Yield the records of these batches, if there are any: compaction keeps empty batches, for the last sequence
        of their producers."""
        counts = batches.numbers("record_count")
        ends = np.cumsum(counts)
        firsts = ends - counts
        starts = np.zeros(int(counts.sum()), np.int64)
        if not starts.size:
            return
        for place, in_body in self.starts.items():
            starts[firsts[place] : ends[place]] = in_body
        batch_of = np.repeat(np.arange(len(batches)), counts)
        data, body_starts, body_ends = self._shared_buffer(batches, records)
        starts += body_starts[batch_of]
        limits = np.empty_like(starts)
        limits[:-1] = starts[1:]
        limits[ends[counts > 0] - 1] = body_ends[counts > 0]
        yield JoinedRecords(data, starts, limits, batch_of, BatchColumns.of(batches))

    def _shared_buffer(self, batches: Batches, records: memoryview) -> tuple[Bytes, Numbers, Numbers]:
        """Return a buffer with all bodies, and where each of them begins and ends in it."""
        body_starts, body_ends = batches.positions + BATCH_HEADER_BYTES, batches.positions + batches.sizes
        if not self.decompressed:
            return np.frombuffer(records, np.uint8), body_starts, body_ends
        bodies = [
            self.decompressed[place] if place in self.decompressed else records[start:end]
            for place, (start, end) in enumerate(zip(body_starts.tolist(), body_ends.tolist(), strict=True))
        ]
        joined = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        body_ends = np.cumsum([len(body) for body in bodies])
        return np.frombuffer(joined, np.uint8), np.concatenate(([0], body_ends[:-1])), body_ends


def open_batches(batches: Batches, records: memoryview, check_crcs: bool) -> Iterator[JoinedRecords]:
    """Yield the records of these batches of `records`, of as many batches together as the bound allows."""
    group = _Group(first=0)
    fields = (batches.positions, batches.sizes, batches.headers["crc"], batches.codecs, batches.headers["record_count"])
    for index, (position, size, crc, codec, count) in enumerate(zip(*(each.tolist() for each in fields), strict=True)):
        # Producers that do not linger write batches of one record: nothing is created for those.
        if check_crcs and crc32c(records[position + CRC_START : position + size]) != crc:
            raise batches.malformed(index, "the CRC does not match")
        body_bytes, starts = size - BATCH_HEADER_BYTES, None
        if count != 1 or codec or body_bytes < RECORD_BYTES_MIN:
            try:
                body, starts = _open(records[position + BATCH_HEADER_BYTES : position + size], codec, count)
            except MalformedData as error:
                raise batches.malformed(index, error) from error
            body_bytes = len(body)
        if group.body_bytes + body_bytes > OPENED_BYTES_MAX and index > group.first:
            yield from group.join(batches[group.first : index], records)
            group = _Group(index)
        group.body_bytes += body_bytes
        if starts is not None:
            group.starts[index - group.first] = starts
            if codec:
                group.decompressed[index - group.first] = body
    yield from group.join(batches[group.first :], records)


def _open(body: Buffer, codec: int, count: int) -> tuple[Buffer, Numbers]:
    """Return the body, decompressed, and where its records start."""
    if codec:
        body = decompress(Compression.from_id(codec), body)
    if not 0 <= count <= len(body) // RECORD_BYTES_MIN:
        raise MalformedData(f"{count} records cannot be in {len(body)} bytes")
    if not count and len(body):
        raise MalformedData(f"{len(body)} bytes of records, but no record")
    try:
        # Not later for all batches at once: the bytes of this one are still in the processor's cache.
        return body, record_starts(np.frombuffer(body, np.uint8), count)
    except IndexError:
        raise MalformedData("a record ends beyond the batch") from None
