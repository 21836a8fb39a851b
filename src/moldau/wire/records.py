"""The contents of a record batch: records, their headers, and the control records that brokers write.

Decoding a batch costs time per record, so the hot paths avoid it. Decoding is strict: lengths and counts are
checked against the bytes that are present, and anything left over is an error.

One record; every number but the attributes is a zigzag varint:

    length of the rest | attributes int8, 0 | timestamp delta | offset delta
    | key length, -1 null | key | value length, -1 null | value
    | header count | per header: key length, key in UTF-8, value length (-1 null), value

A control record's key is (version int16, type int16); an end-of-transaction marker's value is
(version int16, coordinator epoch int32).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.base.limits import DECOMPRESSED_BYTES_MAX
from moldau.wire.batch import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    stamp_crc,
)
from moldau.wire.compression import Compression, compress, decompress

Header = tuple[str, bytes | None]

NEXT_OFFSET: Final = -1
"""As a record's offset in `build_batch`: the next after the previous record's."""


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


new_record = partial(tuple.__new__, Record)
"""Makes a Record from all its fields, without its own constructor, whose cost every record would pay."""


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    committed: bool
    coordinator_epoch: int


# --- building ---------------------------------------------------------------------------------------------------


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    is_log_append_time: bool = False,
) -> bytearray:
    """Return one complete batch. Offsets are absolute; a record with offset `NEXT_OFFSET` follows the previous one."""
    assert records, "a batch holds at least one record"
    base_timestamp = records[0].timestamp
    body, last_delta, max_timestamp = _write_records(records, base_offset, base_timestamp)
    attributes = (
        compression
        | (LOG_APPEND_TIME_BIT if is_log_append_time else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
    )
    payload = compress(compression, body, compression_level) if compression else body
    batch = bytearray(BATCH_HEADER_BYTES)
    batch_length = BATCH_HEADER_BYTES - LENGTH_PREFIX.size + len(payload)
    BATCH_HEADER.pack_into(
        batch, 0, base_offset, batch_length, leader_epoch, MAGIC, 0, attributes, last_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    batch += payload
    stamp_crc(memoryview(batch))
    return batch


def build_value_batch(values: Sequence[bytes], timestamp: int, leader_epoch: int) -> bytearray:
    """Like `build_batch` for records that have only values and the same timestamp, in less than half the time."""
    assert values, "a batch holds at least one record"
    small, small_count = _SMALL_VARINTS, _SMALL_VARINTS_COUNT
    batch = bytearray(BATCH_HEADER_BYTES)
    for delta, value in enumerate(values):
        size = len(value)
        offset_delta = small[delta] if delta < small_count else _encode_varint(delta)
        value_size = small[size] if size < small_count else _encode_varint(size)
        # Besides these: one byte each for the attributes, the timestamp delta, the missing key, and no headers.
        size += 4 + len(offset_delta) + len(value_size)
        record_size = small[size] if size < small_count else _encode_varint(size)
        batch += b"".join((record_size, b"\0\0", offset_delta, _NULL, value_size, value, b"\0"))
    BATCH_HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_PREFIX.size, leader_epoch, MAGIC, 0, 0, len(values) - 1,
        timestamp, timestamp, NO_PRODUCER_ID, -1, -1, len(values),
    )  # fmt: skip
    stamp_crc(memoryview(batch))
    return batch


def control_record(kind: ControlType, value: bytes, timestamp: int, version: int = 0) -> Record:
    return Record(NEXT_OFFSET, timestamp, _CONTROL_KEY.pack(version, kind), value)


def end_txn_marker(marker: EndTxnMarker, timestamp: int) -> Record:
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    return control_record(kind, _END_TXN_VALUE.pack(0, marker.coordinator_epoch), timestamp)


def end_txn_batch(marker: EndTxnMarker, timestamp: int, producer_id: int, producer_epoch: int) -> bytearray:
    """Return the control batch that ends a producer's transaction in a partition."""
    return build_batch(
        [end_txn_marker(marker, timestamp)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def _write_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> tuple[bytearray, int, int]:
    """Return the records' bytes, the last offset delta and the highest timestamp. What coordinators write, a key and a
    value and no headers, is written here without a call per record."""
    small, small_count = _SMALL_VARINTS, _SMALL_VARINTS_COUNT
    body, last_delta, max_timestamp = bytearray(), -1, base_timestamp
    for offset, timestamp, key, value, headers in records:
        delta = last_delta + 1 if offset == NEXT_OFFSET else offset - base_offset
        assert delta > last_delta, "offsets in a batch go up"
        last_delta = delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if key is None or value is None or headers or timestamp != base_timestamp:
            _append_record(body, key, value, headers, delta, timestamp - base_timestamp)
            continue
        key_size, size = len(key), len(value)
        offset_delta = small[delta] if delta < small_count else _encode_varint(delta)
        key_length = small[key_size] if key_size < small_count else _encode_varint(key_size)
        value_length = small[size] if size < small_count else _encode_varint(size)
        record_size = 3 + len(offset_delta) + len(key_length) + key_size + len(value_length) + size
        length = small[record_size] if record_size < small_count else _encode_varint(record_size)
        body += b"".join((length, b"\0\0", offset_delta, key_length, key, value_length, value, b"\0"))
    return body, last_delta, max_timestamp


def _append_record(
    body: bytearray,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    offset_delta: int,
    timestamp_delta: int,
) -> None:
    out = bytearray(1)
    append_varint(out, timestamp_delta)
    append_varint(out, offset_delta)
    _append_bytes(out, key)
    _append_bytes(out, value)
    append_varint(out, len(headers))
    for name, content in headers:
        _append_bytes(out, name.encode())
        _append_bytes(out, content)
    append_varint(body, len(out))
    body += out


def _append_bytes(target: bytearray, data: bytes | None) -> None:
    if data is None:
        target += _NULL
    else:
        append_varint(target, len(data))
        target += data


def append_varint(target: bytearray, value: int) -> None:
    target += _varint(value)


def _varint(value: int) -> bytes:
    return _SMALL_VARINTS[value] if 0 <= value < _SMALL_VARINTS_COUNT else _encode_varint(value)


def _encode_varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    if 0x7F < rest < 1 << 14:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    if 0x7F < rest < 1 << 21:
        return bytes((rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14))
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*out, rest))


_SMALL_VARINTS_COUNT: Final = 1_024
_SMALL_VARINTS: Final = tuple(map(_encode_varint, range(_SMALL_VARINTS_COUNT)))
"""Covers nearly all lengths and deltas."""
_NULL: Final = _encode_varint(-1)


# --- reading ----------------------------------------------------------------------------------------------------

_CONTROL_KEY: Final = struct.Struct(">hh")
_END_TXN_VALUE: Final = struct.Struct(">hi")
_RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two lengths, a header count: one byte each. Limits a record count before use."""
_HEADER_BYTES_MIN: Final = 2
_NO_HEADERS: Final = b"\0"
_ZIGZAG: Final = tuple((raw >> 1) ^ -(raw & 1) for raw in range(0x80))
"""The value of a one-byte varint."""


def decode_records(
    batch: Buffer, header: BatchHeader | None = None, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Return all records of one complete batch. The caller checks the CRC."""
    if header is None:
        header = read_header(batch)
    return read_records(decompressed_body(batch, header, decompressed_bytes_max), header)


def iterate_records(
    batch: Buffer, header: BatchHeader, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Like `decode_records`, but decode a record only when it is asked for."""
    body = decompressed_body(batch, header, decompressed_bytes_max)
    position = 0
    for _ in range(header.record_count):
        record, position = _read_record(body, position, header, len(body))
        yield record
    if position != len(body):
        raise MalformedData(f"{len(body) - position} bytes are left after the last record")


def decompressed_body(batch: Buffer, header: BatchHeader, bytes_max: int) -> bytes:
    """Return the bytes of a batch's records."""
    if header.magic != MAGIC or header.size_in_bytes != len(batch):
        raise MalformedData("not one whole record batch of magic 2")
    payload: Buffer = memoryview(batch)[BATCH_HEADER_BYTES:]
    if header.attributes & CODEC_MASK:
        payload = decompress(header.compression, payload, bytes_max)
    body = bytes(payload)
    if not 0 <= header.record_count <= len(body) // _RECORD_BYTES_MIN:
        raise MalformedData(f"{header.record_count} records cannot be in {len(body)} bytes")
    return body


def read_records(body: bytes, header: BatchHeader, headers_max: int | None = None) -> list[Record]:
    """Return the records in these bytes, which may have `headers_max` headers in all."""
    records: list[Record] = []
    position = 0
    headers_left = len(body) if headers_max is None else headers_max
    for _ in range(header.record_count):
        record, position = _read_record(body, position, header, headers_left)
        records.append(record)
        if record[4]:
            headers_left -= len(record[4])
    if position != len(body):
        raise MalformedData(f"{len(body) - position} bytes are left after the last record")
    return records


def _read_record(body: bytes, position: int, header: BatchHeader, headers_max: int) -> tuple[Record, int]:
    length, position = read_varint(body, position)
    end = position + length
    if length < 0 or end > len(body):
        raise MalformedData(f"a record claims {length} bytes, {len(body) - position} are there")
    timestamp_delta, position = read_varint(body, position + 1, 64)
    offset_delta, position = read_varint(body, position)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise MalformedData(f"offset delta {offset_delta} is not in 0..{header.last_offset_delta}")
    key, position = _read_bytes(body, position, end)
    value, position = _read_bytes(body, position, end)
    headers: tuple[Header, ...] = ()
    if body[position : position + 1] == _NO_HEADERS:
        position += 1
    else:
        headers, position = _read_headers(body, position, end, headers_max)
    if position != end:
        raise MalformedData(f"a record claims {length} bytes, its fields have {length - end + position}")
    # With LogAppendTime the deltas have no meaning: every record was stamped when the batch was appended.
    is_stamped = header.attributes & LOG_APPEND_TIME_BIT
    timestamp = header.max_timestamp if is_stamped else header.base_timestamp + timestamp_delta
    return new_record((header.base_offset + offset_delta, timestamp, key, value, headers)), position


def _read_headers(body: bytes, position: int, end: int, headers_max: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(body, position)
    if not 0 <= count <= (end - position) // _HEADER_BYTES_MIN:
        raise MalformedData(f"{count} headers cannot be in {end - position} bytes")
    if count > headers_max:
        raise MalformedData(f"{count} headers are more than the reader takes")
    if not count:
        return (), position
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_bytes(body, position, end)
        value, position = _read_bytes(body, position, end)
        if key is None:
            raise MalformedData("a header without a key")
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError as error:
            raise MalformedData("a header's key is not UTF-8") from error
    return tuple(headers), position


def _read_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(body, position)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise MalformedData(f"a field claims {length} bytes, {end - position} are there")
    return body[position : position + length], position + length


def read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """Return a zigzag number and the position behind it. `bits` limits both its bytes and its value."""
    if position < len(data) and (byte := data[position]) < 0x80:
        return _ZIGZAG[byte], position + 1
    raw, shift = 0, 0
    while True:
        if position >= len(data) or shift >= bits:
            raise MalformedData("a varint without an end")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if raw >> bits:
        raise MalformedData(f"a varint of more than {bits} bits")
    return (raw >> 1) ^ -(raw & 1), position


def control_type(record: Record) -> ControlType | int:
    """Return the type of a control record; a plain number for newer types, which readers must skip."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise MalformedData("a control record without its key")
    _, kind = _CONTROL_KEY.unpack_from(record.key)
    try:
        return ControlType(kind)
    except ValueError:
        return int(kind)


def read_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """Return the marker in a control record, None for other control records."""
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise MalformedData("an end-of-transaction marker without its value")
    _, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    return EndTxnMarker(kind == ControlType.COMMIT, coordinator_epoch)
