"""The producer state at one offset, in `<offset>.snapshot`, so that opening a log need not read all of it.

Taken when a segment is rolled and when the log is closed. Only the last batch of each producer is kept, as in Kafka.
Big-endian:

    int16   version, 1
    uint32  CRC-32C of all that follows
    int32   number of entries, each
      int64 producer id | int16 epoch | int32 last sequence | int64 last offset
      | int32 last offset minus first of that batch | int64 timestamp | int32 coordinator epoch
      | int64 first offset of the open transaction, or -1
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from moldau.base.errors import MalformedData
from moldau.log.producers import BatchMetadata, ProducerEntry
from moldau.wire.batch import SEQUENCE_MAX
from moldau.wire.crc import crc32c

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_START: Final = 6
_NO_BATCH: Final = BatchMetadata(-1, -1, -1, -1, -1)


def encode_snapshot(producers: Sequence[ProducerEntry]) -> bytes:
    content = bytearray(_HEAD.size + len(producers) * _ENTRY.size)
    # One loop without calls: a log may have 100,000 producers, and the broker waits.
    for position, entry in zip(range(_HEAD.size, len(content), _ENTRY.size), producers, strict=True):
        _, last_sequence, first_offset, last_offset, _ = entry.batches[-1] if entry.batches else _NO_BATCH
        _ENTRY.pack_into(
            content, position,
            entry.producer_id, entry.epoch, last_sequence, last_offset, last_offset - first_offset,
            entry.last_timestamp, entry.coordinator_epoch, entry.transaction_start,
        )  # fmt: skip
    _HEAD.pack_into(content, 0, VERSION, 0, len(producers))
    _HEAD.pack_into(content, 0, VERSION, crc32c(memoryview(content)[_CRC_START:]), len(producers))
    return bytes(content)


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """Raise MalformedData for anything but a whole snapshot with the right CRC."""
    if len(content) < _HEAD.size:
        raise MalformedData("producer snapshot: shorter than its header")
    version, crc, count = _HEAD.unpack_from(content)
    if version != VERSION:
        raise MalformedData(f"producer snapshot: version {version} is not supported")
    if crc32c(memoryview(content)[_CRC_START:]) != crc:
        raise MalformedData("producer snapshot: the CRC does not match")
    if len(content) != _HEAD.size + count * _ENTRY.size:
        raise MalformedData(f"producer snapshot: {count} entries do not take {len(content)} bytes")
    return [_decode_entry(fields) for fields in _ENTRY.iter_unpack(content[_HEAD.size :])]


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction_start = fields
    entry = ProducerEntry(producer_id, epoch, timestamp, coordinator_epoch, transaction_start)
    if last_offset >= 0:
        # Sequences wrap around, so the batch's first one may be larger than its last.
        first_sequence = (last_sequence - delta) & SEQUENCE_MAX if last_sequence >= 0 else -1
        entry.batches.append(BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp))
    return entry
