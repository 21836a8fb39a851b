"""A segment read piece by piece, each of whole batches, with what their headers say as columns."""

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
"""Behind the last batch: whoever reads eight bytes at a time may read that far."""

_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_BATCH_LENGTH_MIN: Final = BATCH_HEADER_BYTES - LENGTH_PREFIX.size


class Piece:
    """Some batches that lie one behind the other; every column has an entry for each. Behind the last one there is
    something more, of no meaning."""

    def __init__(self, content: bytes, starts: list[int], end: int) -> None:
        self.content = content
        self.data: Bytes = np.frombuffer(content, np.uint8)
        """The same, for numpy."""
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
        """One field of every header. Where it lies was told once, in wire/batch.py."""
        size = np.dtype(kind).itemsize
        everywhere: Numbers = np.ndarray((self.data.size - size + 1,), kind, self.data, strides=(1,))
        return everywhere[self.starts + position].astype(np.int64)

    def _has(self, bits: int) -> Mask:
        found: Mask = self.attributes & bits != 0
        return found

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
        """Until when tombstones and markers of each batch stay; -1 where nobody has said yet."""
        has_horizon = self._has(DELETE_HORIZON_BIT)
        return np.where(has_horizon, self.base_timestamps, -1) if has_horizon.any() else np.full(has_horizon.size, -1)

    def batch(self, index: int) -> memoryview:
        start = int(self.starts[index])
        return memoryview(self.content)[start : start + int(self.sizes[index])]

    def check(self, path: str) -> None:
        """Offsets lie outside the CRC: that they go up is all that can be known of them."""
        goes_up = bool((self.last_offsets >= self.base_offsets).all())
        goes_up = goes_up and bool((self.base_offsets[1:] > self.last_offsets[:-1]).all())
        if not goes_up or (self.data[self.starts + MAGIC_POSITION] != MAGIC).any():
            raise MalformedData(f"{path}: batches at {int(self.base_offsets[0])}… whose offsets do not go up")

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


def read_pieces(file: File, end: int, piece_bytes: int, passed: Callable[[int], None]) -> Iterator[Piece]:
    """All of a segment that ends there. `passed` is told of every read."""
    position, wanted = 0, piece_bytes
    while position < end:
        content = file.pread(min(wanted, end - position), position)
        passed(len(content))
        starts, behind = _batch_starts(content)
        if behind > len(content):
            needed = behind - starts.pop() if starts else 0
            behind -= needed
        else:
            needed = 0
        if not starts:
            if not wanted < needed <= end - position:
                raise MalformedData(f"{file.path}: no whole batch at {position}")
            wanted = needed
            continue
        if len(content) - behind < len(PADDING):
            content += PADDING
        piece = Piece(content, starts, behind)
        piece.check(file.path)
        yield piece
        position += behind
        wanted = piece_bytes


def _batch_starts(content: bytes) -> tuple[list[int], int]:
    """Where each batch begins whose header is there, and where the last one ends, be it beyond what is there."""
    length_at, overhead, shortest = _LENGTH.unpack_from, LENGTH_PREFIX.size, _BATCH_LENGTH_MIN
    starts: list[int] = []
    at, last = 0, len(content) - BATCH_HEADER_BYTES
    while at <= last:
        (length,) = length_at(content, at + _LENGTH_POSITION)
        if length < shortest:
            break
        starts.append(at)
        at += length + overhead
    return starts, at
