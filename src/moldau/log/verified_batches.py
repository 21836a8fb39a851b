"""Reads a .log file after a crash: batch by batch, up to the first that is incomplete or does not match its CRC.

Recovery reads gigabytes of batches of a few hundred bytes. Most of them are like the one before: the same leader epoch,
no control records. `VerifiedBatches.read_run` reads those in a loop that makes no objects for them, in a third of the
iterator's time. Whatever it does not expect it leaves to the iterator, which decides where the log ends.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from moldau.base.limits import PRODUCER_BATCHES_KEPT
from moldau.log.files import File
from moldau.log.time_index import TimestampOffset
from moldau.wire.batch import (
    ATTRIBUTES_LOW_BYTE_POSITION,
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    CRC_START,
    LENGTH_PREFIX,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from moldau.wire.crc import crc32c

PIECE_BYTES: Final = 1 << 20
_PREFIX_BYTES: Final = LENGTH_PREFIX.size
_FIELDS: Final = struct.Struct(">qi5sI2xi8xqq")
"""Base offset, batch length, leader epoch and magic, CRC, last offset delta, max timestamp, producer id."""
_EPOCH_AND_MAGIC: Final = struct.Struct(">ib")


class IndexEntry(NamedTuple):
    last_offset: int
    position: int
    base_offset: int
    largest: TimestampOffset
    """The largest timestamp up to this batch."""


class Run(NamedTuple):
    """Batches that follow one another."""

    end: int
    """The position after the last one."""
    next_offset: int
    largest: TimestampOffset
    entries: list[IndexEntry]
    producer_batches: list[BatchHeader]
    """Enough headers of data batches, in order, to bring the producers to the same state as all batches of the run
    would."""


class VerifiedBatches:
    """An iterator of (position, header) of each batch."""

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._position = position
        self._end = end
        self._piece = b""
        self._piece_start = position

    def __iter__(self) -> VerifiedBatches:
        return self

    def __next__(self) -> tuple[int, BatchHeader]:
        position = self._position
        in_piece = position - self._piece_start
        if len(self._piece) - in_piece < BATCH_HEADER_BYTES:
            in_piece = self._read_piece()
        header = BatchHeader._make(BATCH_HEADER.unpack_from(self._piece, in_piece))
        size = header.size_in_bytes
        if header.magic != MAGIC or not BATCH_HEADER_BYTES <= size <= self._end - position:
            raise StopIteration
        if in_piece + size > len(self._piece) and size <= PIECE_BYTES:
            in_piece = self._read_piece()
        if in_piece + size <= len(self._piece):
            crc = crc32c(memoryview(self._piece)[in_piece + CRC_START : in_piece + size])
        else:
            crc = _crc_of_file(self._file, position + CRC_START, position + size)
        if crc != header.crc:
            raise StopIteration
        self._position += size
        return position, header

    def _read_piece(self) -> int:
        """Read a piece that begins at the position; return 0, the place of the position in it."""
        # May be negative: recovery also starts after a damaged batch, whose length may point beyond the file.
        bytes_left = self._end - self._position
        if bytes_left < BATCH_HEADER_BYTES:
            raise StopIteration
        self._piece_start = self._position
        self._piece = self._file.pread(min(PIECE_BYTES, bytes_left), self._position)
        if len(self._piece) < BATCH_HEADER_BYTES:
            raise StopIteration
        return 0

    def read_run(
        self,
        next_offset: int,
        offset_max: int,
        epoch: int,
        largest: TimestampOffset,
        last_indexed_position: int,
        index_interval_bytes: int,
    ) -> Run:
        """Read on as long as batches have this leader epoch, no control records, and offsets from `next_offset` to
        `offset_max`, but not beyond the piece in memory. `largest` is the largest timestamp so far,
        `last_indexed_position` the position of the last batch that has an entry in the index."""
        piece, piece_start = self._piece, self._piece_start
        view, unpack, crc_of, piece_bytes = memoryview(piece), _FIELDS.unpack_from, crc32c, len(piece)
        in_piece, last_start = self._position - piece_start, piece_bytes - BATCH_HEADER_BYTES
        expected = _EPOCH_AND_MAGIC.pack(epoch, MAGIC)
        largest_timestamp, largest_offset = largest.timestamp, largest.offset
        # The next batch that begins after this position gets an entry in the index.
        index_after = last_indexed_position + index_interval_bytes - piece_start
        entries: list[IndexEntry] = []
        by_producer: defaultdict[int, list[int]] = defaultdict(list)
        while in_piece <= last_start:
            base_offset, length, epoch_and_magic, crc, delta, timestamp, producer_id = unpack(piece, in_piece)
            end, last_offset = in_piece + _PREFIX_BYTES + length, base_offset + delta
            if (
                epoch_and_magic != expected
                or not next_offset <= base_offset <= last_offset <= offset_max
                or not in_piece + BATCH_HEADER_BYTES <= end <= piece_bytes
                or crc_of(view[in_piece + CRC_START : end]) != crc
            ):
                break
            if producer_id >= 0:
                if piece[in_piece + ATTRIBUTES_LOW_BYTE_POSITION] & CONTROL_BIT:
                    break
                by_producer[producer_id].append(in_piece)
            if timestamp > largest_timestamp:
                largest_timestamp, largest_offset = timestamp, last_offset
            if in_piece > index_after:
                so_far = TimestampOffset(largest_timestamp, largest_offset)
                entries.append(IndexEntry(last_offset, piece_start + in_piece, base_offset, so_far))
                index_after = in_piece + index_interval_bytes
            next_offset = last_offset + 1
            in_piece = end
        self._position = piece_start + in_piece
        largest = TimestampOffset(largest_timestamp, largest_offset)
        return Run(self._position, next_offset, largest, entries, _decisive(piece, by_producer))


def _decisive(piece: bytes, by_producer: Mapping[int, list[int]]) -> list[BatchHeader]:
    """Return the headers of the batches that decide the state of their producers: the last few of each; its first one,
    because producers are kept in the order of their first batches; and its first one in a transaction."""
    chosen: set[int] = set()
    for positions in by_producer.values():
        transactional = (each for each in positions if piece[each + ATTRIBUTES_LOW_BYTE_POSITION] & TRANSACTIONAL_BIT)
        chosen.update(positions[:1], islice(transactional, 1), positions[-PRODUCER_BATCHES_KEPT:])
    return [BatchHeader._make(BATCH_HEADER.unpack_from(piece, each)) for each in sorted(chosen)]


def _crc_of_file(file: File, start: int, end: int) -> int:
    crc = 0
    for position in range(start, end, PIECE_BYTES):
        crc = crc32c(file.pread(min(PIECE_BYTES, end - position), position), crc)
    return crc
