"""A record batch, magic 2, as a window on received bytes: read its header, check its CRC, stamp it in place.

`records.py` decodes the records of a batch; nothing here copies, reads files or knows a log.

The header, big-endian, 61 bytes; the records follow it, compressed as one piece if a codec is set:

    offset  bytes  field
         0      8  base offset
         8      4  batch length: bytes that follow this field, so the whole batch is 12 longer
        12      4  partition leader epoch
        16      1  magic, 2
        17      4  CRC-32C of everything from byte 21 on
        21      2  attributes: 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 has delete horizon
        23      4  last offset delta
        27      8  base timestamp (or the delete horizon, if bit 6 is set)
        35      8  max timestamp
        43      8  producer id, -1 without one
        51      2  producer epoch
        53      4  base sequence
        57      4  record count

Base offset and leader epoch lie outside the CRC, so a broker stamps both without reading the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.wire.compression import Compression
from moldau.wire.crc import crc32c

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_HEADER_BYTES: Final = BATCH_HEADER.size
LENGTH_PREFIX: Final = struct.Struct(">qi")
"""Base offset and batch length: enough to step over a batch. The length does not count these 12 bytes."""

MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21
"""First byte that the CRC covers."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_PRODUCER_ID: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1
"""After this sequence comes 0."""
NO_TIMESTAMP: Final = -1

_UINT32 = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_ATTRIBUTES_POSITION: Final = 21
ATTRIBUTES_LOW_BYTE_POSITION: Final = _ATTRIBUTES_POSITION + 1
"""Where codec, timestamp type, transactional and control bits are."""
_MAX_TIMESTAMP_POSITION: Final = 35
_LEADER_EPOCH_POSITION: Final = 12
_PRODUCER_POSITION: Final = 43
RECORD_COUNT_POSITION: Final = 57
_PRODUCER: Final = struct.Struct(">qhi")


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """The delete horizon instead, if DELETE_HORIZON_BIT is set."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_in_bytes(self) -> int:
        return LENGTH_PREFIX.size + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """Raises MalformedData for an unknown codec."""
        return Compression.from_id(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(view: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`; the batch need not be complete."""
    if len(view) - position < BATCH_HEADER_BYTES:
        raise MalformedData(f"a batch header needs {BATCH_HEADER_BYTES} bytes, {len(view) - position} are there")
    return BatchHeader._make(BATCH_HEADER.unpack_from(view, position))


def split_batches(view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch in `view` with its own window. MalformedData for a wrong length or a rest that is no batch."""
    position, end = 0, len(view)
    while position < end:
        header = read_header(view, position)
        size = header.size_in_bytes
        if size < BATCH_HEADER_BYTES or size > end - position:
            raise MalformedData(f"batch at byte {position} claims {size} bytes, {end - position} are there")
        if header.magic != MAGIC:
            raise MalformedData(f"batch at byte {position} has magic {header.magic}, not {MAGIC}")
        yield header, view[position : position + size]
        position += size


def has_valid_crc(batch: memoryview) -> bool:
    """Whether the stored CRC matches the bytes. `batch` is exactly one batch."""
    stored: int = _UINT32.unpack_from(batch, CRC_POSITION)[0]
    return crc32c(batch[CRC_START:]) == stored


def stamp(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Set the batch's place in the log. Both fields lie outside the CRC."""
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, _LEADER_EPOCH_POSITION, leader_epoch)


def stamp_log_append_time(batch: memoryview, now_ms: int) -> None:
    """Mark the batch as stamped by the broker: every record's timestamp becomes `now_ms`. Updates the CRC."""
    batch[ATTRIBUTES_LOW_BYTE_POSITION] |= LOG_APPEND_TIME_BIT
    _INT64.pack_into(batch, _MAX_TIMESTAMP_POSITION, now_ms)
    stamp_crc(batch)


def stamp_create_time(batch: memoryview, max_timestamp: int) -> None:
    """Mark the batch as stamped by its producer, with the latest record at `max_timestamp`. Updates the CRC."""
    batch[ATTRIBUTES_LOW_BYTE_POSITION] &= ~LOG_APPEND_TIME_BIT & 0xFF
    _INT64.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp)
    stamp_crc(batch)


def stamp_producer(batch: memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set producer id, epoch and base sequence. Updates the CRC."""
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    stamp_crc(batch)


def next_sequence(sequence: int, record_count: int) -> int:
    """Return the base sequence of the batch that follows a batch with this base sequence and record count."""
    return (sequence + record_count) & SEQUENCE_MAX


def stamp_crc(batch: memoryview) -> None:
    _UINT32.pack_into(batch, CRC_POSITION, crc32c(batch[CRC_START:]))
