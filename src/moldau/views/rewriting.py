"""Writes the batches that a view shows: those of the source, without the records that it leaves out.

A batch keeps its offsets, times, producer and transaction bits, as after compaction. Control batches and batches that
are shown whole are copied. Batches that lose all records are left out. If that is the last one, a marker takes its
place: a control batch, which every client skips, at the last offset, so that consumers move on behind it.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.columns.varints import Numbers, put, sizes, skip, zigzag
from moldau.log.cleaning.pieces import Piece
from moldau.views.markers import marker
from moldau.views.records import Records, slots, taken
from moldau.wire.batch import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    LENGTH_PREFIX,
    read_header,
    stamp_crc,
)
from moldau.wire.compression import Compression, compress

COMPRESSED_BYTES_MIN: Final = 1024
"""Fewer bytes are not compressed: it would save nothing that matters."""


def varint_column(numbers: Numbers) -> pa.Array:
    """Each number as the bytes of its zigzag varint."""
    raw = zigzag(numbers)
    lengths = sizes(raw)
    edges = np.zeros(numbers.size + 1, np.int32)
    np.cumsum(lengths, out=edges[1:])
    data = np.empty(int(edges[-1]), np.uint8)
    put(data, edges[:-1].astype(np.int64), raw, lengths)
    return pa.Array.from_buffers(pa.binary(), numbers.size, [None, pa.py_buffer(edges), pa.py_buffer(data)])


def field_column(values: pa.Array) -> pa.Array:
    """Each value with its length before it; a null as the length -1."""
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return pc.binary_join_element_wise(varint_column(lengths), pc.fill_null(values, b""), b"")


def kept_records(records: Records, rows: Numbers) -> pa.Array:
    """The bytes of these records, unchanged."""
    return taken(slots(records.data, records.starts, records.ends), rows)


def changed_records(
    records: Records, rows: Numbers, values: pa.Array | None, keys: pa.Array | None, keeps_headers: bool
) -> pa.Array:
    """These records with other values, keys or without headers; None stands for those that they have."""
    data = records.data
    key_at = _after_offset_delta(records)[rows]
    parts = [taken(slots(data, (records.timestamps_at - 1)[rows], key_at), np.arange(rows.size))]
    if keys is None:
        parts.append(taken(slots(data, key_at, records.keys.ends[rows]), np.arange(rows.size)))
    else:
        parts.append(field_column(keys))
    if values is None:
        parts.append(taken(slots(data, records.keys.ends[rows], records.values.ends[rows]), np.arange(rows.size)))
    else:
        parts.append(field_column(values))
    if keeps_headers:
        parts.append(taken(slots(data, records.values.ends[rows], records.ends[rows]), np.arange(rows.size)))
        bodies = pc.binary_join_element_wise(*parts, b"")
    else:
        bodies = pc.binary_join_element_wise(*parts, b"\x00", b"")
    lengths = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64)
    return pc.binary_join_element_wise(varint_column(lengths), bodies, b"")


def _after_offset_delta(records: Records) -> Numbers:
    """Where each record's key length is."""
    return skip(records.data, skip(records.data, records.timestamps_at))


class ShownBatches:
    """Collects the batches of a piece that a view shows."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self._parts: dict[int, bytes | bytearray | memoryview] = {}
        self.records = 0
        self.bytes = 0
        """Of the batches with these records."""

    def add_controls(self) -> None:
        for index in np.flatnonzero(self._piece.is_control).tolist():
            self._parts[index] = self._piece.batch(index)

    def add(self, batch_of: Numbers, written: pa.Array, is_changed: bool) -> None:
        """Add records, each with the index of its batch, in order."""
        if not batch_of.size:
            return
        self.records += batch_of.size
        indexes, firsts = np.unique(batch_of, return_index=True)
        edges = np.append(firsts, batch_of.size)
        _, offsets, data = written.buffers()
        positions = np.frombuffer(offsets, np.int32)[written.offset : written.offset + batch_of.size + 1]
        body = memoryview(data)
        counts = np.diff(edges)
        is_whole = (counts == self._piece.record_counts[indexes]) & (not is_changed)
        for index, count, begin, end, whole in zip(
            indexes.tolist(),
            counts.tolist(),
            positions[edges[:-1]].tolist(),
            positions[edges[1:]].tolist(),
            is_whole.tolist(),
            strict=True,
        ):
            batch = self._piece.batch(index)
            part = self._parts[index] = batch if whole else _batch(batch, count, body[begin:end])
            self.bytes += len(part)

    @property
    def holds_batches(self) -> bool:
        return bool(self._parts)

    def content(self) -> tuple[bytes, tuple[int, ...], tuple[int, ...]]:
        """Return all batches in order, where each begins, and its last offset. The last one ends where the piece
        ends."""
        last = self._piece.starts.size - 1
        indexes = sorted(self._parts)
        parts = [self._parts[index] for index in indexes]
        if last not in self._parts:
            indexes.append(last)
            parts.append(marker(int(self._piece.last_offsets[last]), read_header(self._piece.batch(last)).leader_epoch))
        positions = tuple(accumulate(map(len, parts[:-1]), initial=0))
        return b"".join(parts), positions, tuple(self._piece.last_offsets[indexes].tolist())


def _batch(source: memoryview, record_count: int, body: memoryview) -> bytearray:
    """The source's header over other records."""
    header = read_header(source)
    codec = Compression.from_id(header.attributes & CODEC_MASK)
    attributes = header.attributes
    payload: bytes | memoryview | bytearray = body
    if codec is not Compression.NONE:
        if len(body) < COMPRESSED_BYTES_MIN:
            attributes &= ~CODEC_MASK
        else:
            payload = compress(codec, body)
    batch = bytearray(
        BATCH_HEADER.pack(
            *header._replace(
                batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size + len(payload),
                attributes=attributes,
                record_count=record_count,
            )
        )
    )
    batch += payload
    stamp_crc(memoryview(batch))
    return batch
