"""Batches opened: CRC checked, records decompressed, several batches side by side in one piece of memory.

So all rows of a fetch are decoded at once, however small its batches are. Records that were never compressed are not
copied: their batches already lie side by side, headers between them. What is opened at one time is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from moldau.base.errors import MalformedData
from moldau.spark.batches import Batch
from moldau.spark.record_starts import Span
from moldau.spark.varints import Bytes
from moldau.wire.batch import BATCH_HEADER_BYTES, BatchHeader, check_crc
from moldau.wire.compression import Buffer, Compression, decompress

OPENED_BYTES_MAX: Final = 256 << 20
"""Records opened at one time. One batch more may be open meanwhile, which `decompress` bounds for itself."""
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two lengths, a header count: one byte each. Bounds a count before it is believed."""


class Bodies(NamedTuple):
    """The records of several batches, none of them empty, in one piece of memory."""

    data: Bytes
    spans: list[Span]
    headers: list[BatchHeader]


class _Opened(NamedTuple):
    batch: Batch
    body: Buffer


def open_batches(batches: Iterable[Batch], records: memoryview, is_crc_checked: bool) -> Iterator[Bodies]:
    """The bodies of these windows on `records`, as many together as the bound allows."""
    together: list[_Opened] = []
    size = 0
    for batch in batches:
        body = _open(batch, is_crc_checked)
        if not batch.header.record_count:  # compaction keeps the header of a producer's last batch
            continue
        if together and size + len(body) > OPENED_BYTES_MAX:
            yield _side_by_side(together, records)
            together, size = [], 0
        together.append(_Opened(batch, body))
        size += len(body)
    if together:
        yield _side_by_side(together, records)


def _open(batch: Batch, is_crc_checked: bool) -> Buffer:
    header = batch.header
    if is_crc_checked and not check_crc(batch.view):
        raise batch.malformed("its CRC is not that of its bytes")
    try:
        body = decompress(header.compression, batch.view[BATCH_HEADER_BYTES:])
    except MalformedData as error:
        raise batch.malformed(error) from error
    if not 0 <= header.record_count <= len(body) // RECORD_BYTES_MIN:
        raise batch.malformed(f"{header.record_count} records cannot be in {len(body)} bytes")
    if not header.record_count and len(body):
        raise batch.malformed(f"{len(body)} bytes of records, but no record")
    return body


def _side_by_side(together: Sequence[_Opened], records: memoryview) -> Bodies:
    headers = [opened.batch.header for opened in together]
    first, last = together[0].batch, together[-1].batch
    begin, end = first.position + BATCH_HEADER_BYTES, last.position + len(last.view)
    is_plain = all(header.compression == Compression.NONE for header in headers)
    # Batches between them that are not wanted lie in the window too: with a whole log of those, copying is better.
    if is_plain and (len(together) == 1 or end - begin <= 2 * OPENED_BYTES_MAX):
        starts = [opened.batch.position + BATCH_HEADER_BYTES - begin for opened in together]
        data = np.frombuffer(records[begin:end], np.uint8)
    else:
        starts = [0, *np.cumsum([len(opened.body) for opened in together[:-1]]).tolist()]
        data = np.frombuffer(together[0].body if len(together) == 1 else b"".join(o.body for o in together), np.uint8)
    spans = [
        Span(start, start + len(opened.body), opened.batch.header.record_count)
        for start, opened in zip(starts, together, strict=True)
    ]
    return Bodies(data, spans, headers)
