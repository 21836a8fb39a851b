"""A segment read piece by piece, each of whole batches, with what their headers say as columns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moldau.base.errors import MalformedData
from moldau.columns.varints import Bytes, Mask, Numbers
from moldau.log.files import File
from moldau.wire.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    LENGTH_PREFIX,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from moldau.wire.crc import crc32c

PADDING: Final = bytes(8)
"""Behind the last batch: whoever reads eight bytes at a time may read that far."""

_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert _HEADER.itemsize == BATCH_HEADER_BYTES


class Piece(NamedTuple):
    """Some batches that lie one behind the other; every column has an entry for each."""

    content: bytes
    data: Bytes
    """The same, for numpy."""
    starts: Numbers
    sizes: Numbers
    headers: npt.NDArray[np.void]
    attributes: Numbers
    base_offsets: Numbers
    last_offsets: Numbers
    record_counts: Numbers
    producer_ids: Numbers

    @property
    def is_compressed(self) -> Mask:
        return self._has(CODEC_MASK)

    @property
    def is_control(self) -> Mask:
        return self._has(CONTROL_BIT)

    @property
    def is_transactional(self) -> Mask:
        return self._has(TRANSACTIONAL_BIT)

    def _has(self, bits: int) -> Mask:
        found: Mask = self.attributes & bits != 0
        return found

    @property
    def delete_horizons(self) -> Numbers:
        """Until when tombstones and markers of each batch stay; -1 where nobody has said yet."""
        return np.where(self._has(DELETE_HORIZON_BIT), self.headers["base_timestamp"], -1).astype(np.int64)

    def batch(self, index: int) -> memoryview:
        start = int(self.starts[index])
        return memoryview(self.content)[start : start + int(self.sizes[index])]

    def check_crcs(self, indexes: Numbers | None = None) -> None:
        starts, sizes, crcs = self.starts, self.sizes, self.headers["crc"]
        if indexes is not None:
            starts, sizes, crcs = starts[indexes], sizes[indexes], crcs[indexes]
        view = memoryview(self.content)
        begins, ends = (starts + CRC_START).tolist(), (starts + sizes).tolist()
        computed = [crc32c(view[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        if computed != crcs.tolist():
            bad = int(np.flatnonzero(np.array(computed, np.uint32) != crcs)[0])
            raise MalformedData(f"the batch with bytes {int(starts[bad])}… of a piece does not match its CRC")


def read_pieces(file: File, size: int, piece_bytes: int, passed: Callable[[int], None]) -> Iterator[Piece]:
    """All of a segment from its first byte on. `passed` is told of every read."""
    return read_pieces_from(file, 0, size, piece_bytes, passed)


def read_pieces_from(
    file: File, position: int, end: int, piece_bytes: int, passed: Callable[[int], None]
) -> Iterator[Piece]:
    wanted = piece_bytes
    while position < end:
        content = file.pread(min(wanted, end - position), position)
        passed(len(content))
        starts, used, needed = _batch_starts(content, file.path, position, end)
        if not starts:
            if len(content) < min(wanted, end - position) or needed <= wanted:
                raise MalformedData(f"{file.path}: {end - position} bytes at {position} are no whole batch")
            wanted = needed
            continue
        piece = _piece(content[:used] + PADDING, starts, used)
        _check(piece, file.path)
        yield piece
        position += used
        wanted = piece_bytes


def _batch_starts(content: bytes, path: str, position: int, end: int) -> tuple[list[int], int, int]:
    """(where each whole batch begins, where the last one ends, the size of the one that is not whole)."""
    length_at, overhead = _LENGTH.unpack_from, LENGTH_PREFIX.size
    starts: list[int] = []
    at, last = 0, len(content) - BATCH_HEADER_BYTES
    size = BATCH_HEADER_BYTES
    room = len(content)
    while at <= last:
        size = overhead + length_at(content, at + _LENGTH_POSITION)[0]
        if size > room - at or size < BATCH_HEADER_BYTES:
            break
        starts.append(at)
        at += size
    if size < BATCH_HEADER_BYTES or size > end - position - at > 0:
        raise MalformedData(f"{path}: no batch at {position + at}")
    return starts, at, size


def _piece(content: bytes, starts: list[int], used: int) -> Piece:
    data = np.frombuffer(content, np.uint8)
    begins = np.array(starts, np.int64)
    sizes = np.diff(begins, append=used)
    headers = data[begins[:, None] + np.arange(BATCH_HEADER_BYTES)].view(_HEADER)[:, 0]
    base_offsets = headers["base_offset"].astype(np.int64)
    return Piece(
        content, data, begins, sizes, headers, headers["attributes"].astype(np.int64), base_offsets,
        base_offsets + headers["last_offset_delta"], headers["record_count"].astype(np.int64),
        headers["producer_id"].astype(np.int64),
    )  # fmt: skip


def _check(piece: Piece, path: str) -> None:
    """Offsets lie outside the CRC: that they go up is all that can be known of them."""
    goes_up = bool((piece.last_offsets >= piece.base_offsets).all())
    goes_up = goes_up and bool((piece.base_offsets[1:] > piece.last_offsets[:-1]).all())
    if not goes_up or (piece.headers["magic"] != MAGIC).any():
        raise MalformedData(f"{path}: batches at {int(piece.base_offsets[0])}… whose offsets do not go up")
