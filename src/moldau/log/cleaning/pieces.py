"""Reads a segment in pieces of whole batches, with the header fields as numpy columns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

import numpy as np

from moldau.base.errors import MalformedData
from moldau.columns.varints import Bytes, Mask, Numbers
from moldau.log.files import File
from moldau.wire.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    DELETE_HORIZON_BIT,
    LENGTH_PREFIX,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
)
from moldau.wire.crc import crc32c

PADDING: Final = bytes(8)
"""Follows the last batch, so that eight bytes can be read at any position."""

_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_BATCH_LENGTH_MIN: Final = BATCH_HEADER_BYTES - LENGTH_PREFIX.size


class Piece:
    """Consecutive batches; every column has an entry for each. At least PADDING of arbitrary bytes follows the last."""

    def __init__(self, content: bytes | bytearray, starts: list[int], end: int) -> None:
        self.content = content
        self.data: Bytes = np.frombuffer(content, np.uint8)
        """`content` as a numpy array."""
        self.starts: Numbers = np.array(starts, np.int64)
        self.sizes: Numbers = np.diff(self.starts, append=end)
        self.attributes = self._column(">i2", 21)
        self.base_offsets = self._column(">i8", 0)
        self.last_offsets = self.base_offsets + self._column(">i4", 23)
        self.record_counts = self._column(">i4", 57)
        self.is_compressed = self._has(CODEC_MASK)
        self.is_control = self._has(CONTROL_BIT)
        self.is_transactional = self._has(TRANSACTIONAL_BIT)

    def _column(self, kind: str, position: int) -> Numbers:
        """Return one field of every header. The positions are those of wire/batch.py."""
        size = np.dtype(kind).itemsize
        field_at: Numbers = np.ndarray((self.data.size - size + 1,), kind, self.data, strides=(1,))
        return field_at[self.starts + position].astype(np.int64)

    def _has(self, bits: int) -> Mask:
        is_set: Mask = self.attributes & bits != 0
        return is_set

    @cached_property
    def producer_ids(self) -> Numbers:
        return self._column(">i8", 43)

    @cached_property
    def producer_epochs(self) -> Numbers:
        return self._column(">i2", 51)

    @cached_property
    def base_timestamps(self) -> Numbers:
        return self._column(">i8", 27)

    @cached_property
    def max_timestamps(self) -> Numbers:
        return self._column(">i8", 35)

    @cached_property
    def delete_horizons(self) -> Numbers:
        """Return the time until which tombstones and markers of each batch stay; -1 where it is not set yet."""
        has_horizon = self._has(DELETE_HORIZON_BIT)
        return np.where(has_horizon, self.base_timestamps, -1) if has_horizon.any() else np.full(has_horizon.size, -1)

    def batch(self, index: int) -> memoryview:
        start = int(self.starts[index])
        return memoryview(self.content)[start : start + int(self.sizes[index])]

    def check(self, path: str) -> None:
        """Raise MalformedData if offsets do not increase, or a magic is wrong: both are outside the CRC."""
        increases = bool((self.last_offsets >= self.base_offsets).all())
        increases = increases and bool((self.base_offsets[1:] > self.last_offsets[:-1]).all())
        if not increases or (self.data[self.starts + MAGIC_POSITION] != MAGIC).any():
            first = int(self.base_offsets[0])
            raise MalformedData(f"{path}: offsets of the batches from {first} on do not increase, or magic is not 2")

    def check_crcs(self, indexes: Numbers) -> None:
        view = memoryview(self.content)
        begins = (self.starts[indexes] + CRC_START).tolist()
        ends = (self.starts[indexes] + self.sizes[indexes]).tolist()
        computed = np.array([crc32c(view[begin:end]) for begin, end in zip(begins, ends, strict=True)], np.int64)
        wrong = np.flatnonzero(computed != self._column(">u4", CRC_POSITION)[indexes])
        if wrong.size:
            raise MalformedData(
                f"the batch at offset {int(self.base_offsets[indexes[wrong[0]]])} does not match its CRC"
            )


def read_pieces(file: File, end: int, piece_bytes: int, on_read: Callable[[int], None]) -> Iterator[Piece]:
    """Yield the pieces of a segment of `end` bytes. `on_read` is called with the size of every read."""
    position, read_bytes = 0, piece_bytes
    while position < end:
        content = file.pread(min(read_bytes, end - position), position)
        on_read(len(content))
        starts, batches_end = batch_starts(content)
        if batches_end > len(content):
            needed = batches_end - starts.pop() if starts else 0
            batches_end -= needed
        else:
            needed = 0
        if not starts:
            if not read_bytes < needed <= end - position:
                raise MalformedData(f"{file.path}: no whole batch at position {position}")
            read_bytes = needed
            continue
        if len(content) - batches_end < len(PADDING):
            content += PADDING
        piece = Piece(content, starts, batches_end)
        piece.check(file.path)
        yield piece
        position += batches_end
        read_bytes = piece_bytes


def batch_starts(content: bytes | bytearray, size: int | None = None) -> tuple[list[int], int]:
    """Return the start of each batch whose header is in `content`, or in its first `size` bytes, and the end of the
    last one, which may be beyond them."""
    length_at, overhead, shortest = _LENGTH.unpack_from, LENGTH_PREFIX.size, _BATCH_LENGTH_MIN
    starts: list[int] = []
    at, last = 0, (len(content) if size is None else size) - BATCH_HEADER_BYTES
    while at <= last:
        (length,) = length_at(content, at + _LENGTH_POSITION)
        if length < shortest:
            break
        starts.append(at)
        at += length + overhead
    return starts, at
