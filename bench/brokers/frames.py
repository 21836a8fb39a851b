"""Requests as bytes, built once and sent many times, and the positions of fields in replies.

It has only fixed layouts (Produce v7, Fetch v11, ApiVersions v0), so that a client can patch a number in place and
read an error code without parsing. No socket, and no clock but a batch's timestamp.

    frame             int32 size of the rest | int16 api key | int16 version | int32 correlation id
                      string client id | body
    record batch      int64 base offset | int32 size of the rest | int32 leader epoch | int8 magic, 2
                      uint32 crc32c of the rest | int16 attributes | int32 last offset delta
                      int64 first and int64 last timestamp | int64 producer id | int16 producer epoch
                      int32 base sequence | int32 count | records
    record            varint size of the rest | int8 attributes | varint timestamp delta | varint offset delta
                      varint key size, -1 | varint value size | value | varint header count, 0
    Produce v7 reply  int32 size | int32 correlation id | int32 topics, 1 | string name | int32 partitions, 1
                      int32 index | int16 error | int64 base offset | int64 append time | int64 log start
                      int32 throttle
    Fetch v11 reply   int32 size | int32 correlation id | int32 throttle | int16 error | int32 session id
                      int32 topics | string name | int32 partitions | int32 index | int16 error
                      int64 high watermark | int64 last stable offset | int64 log start
                      int32 aborted transactions, none | int32 preferred replica | int32 size | records
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
CLIENT_ID: Final = b"bench"
SIZE_BYTES: Final = 4
ACKS_ALL: Final = -1
NO_SESSION: Final = (0, -1)
"""Session id and epoch of a fetch without a session (KIP-227)."""
NO_PRODUCER: Final = (-1, -1, -1)

FETCH_MAX_BYTES: Final = 50 << 20
FETCH_MAX_WAIT_MS: Final = 500

FETCH_REPLY_HEAD: Final = struct.Struct(">iihii")
"""From the correlation id to the number of topics."""
FETCH_REPLY_PARTITION: Final = struct.Struct(">iihqqqiii")
"""From the number of partitions to the size of the records."""


def request(api_key: int, version: int, body: bytes) -> bytes:
    """Return a whole frame. The correlation id is always 1: replies come in order, and nobody else reads them."""
    head = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def api_versions_request() -> bytes:
    return request(API_VERSIONS, 0, b"")


def record_batch(records: int, value_bytes: int) -> bytes:
    """Return records without keys and with random values, which cannot be compressed on the way."""
    return batch_of([record(delta, os.urandom(value_bytes)) for delta in range(records)])


def batch_of(records: Sequence[bytes], attributes: int = 0, producer: tuple[int, int, int] = NO_PRODUCER) -> bytes:
    """`producer` is its id, its epoch, and the sequence of the first record."""
    count, now_ms = len(records), time.time_ns() // 1_000_000
    checked = struct.pack(">hiqqqhii", attributes, count - 1, now_ms, now_ms, *producer, count) + b"".join(records)
    sized = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(sized)) + sized


def record(offset_delta: int, value: bytes) -> bytes:
    rest = b"\0" + _varint(0) + _varint(offset_delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(rest)) + rest


def _varint(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


@dataclass(frozen=True)
class ProduceFrame:
    """One batch for one partition, ready to send, and the shape of its reply."""

    data: bytes
    reply_bytes: int
    error_at: int


def produce_frame(topic: str, partition: int, batch: bytes) -> ProduceFrame:
    name = _string(topic)
    body = struct.pack(">hhii", -1, ACKS_ALL, 30_000, 1) + name
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    before_partition = SIZE_BYTES + 4 + 4 + len(name) + 4
    return ProduceFrame(request(PRODUCE, 7, body), before_partition + 30 + 4, before_partition + 4)


@dataclass(frozen=True)
class FetchFrame:
    """A fetch whose session epoch and whose last partition's offset can be overwritten in place."""

    data: bytearray
    session_at: int
    offset_at: int


def fetch_frame(
    partitions: Mapping[str, range], partition_bytes: int, session: tuple[int, int] = NO_SESSION
) -> FetchFrame:
    """Return a fetch of partitions from offset 0 that is answered as soon as there is one byte."""
    topics = b"".join(_fetch_topic(topic, indexes, partition_bytes) for topic, indexes in partitions.items())
    limits = struct.pack(">iiiib", -1, FETCH_MAX_WAIT_MS, 1, FETCH_MAX_BYTES, 0)
    body = limits + struct.pack(">iii", *session, len(partitions)) + topics
    tail = struct.pack(">i", 0) + _string("")  # no forgotten topics, no rack
    data = bytearray(request(FETCH, 11, body + tail))
    session_at = len(data) - len(tail) - len(topics) - 12
    offset_at = len(data) - len(tail) - 20
    return FetchFrame(data, session_at, offset_at)


def _fetch_topic(topic: str, indexes: range, partition_bytes: int) -> bytes:
    partitions = b"".join(struct.pack(">iiqqi", index, -1, 0, -1, partition_bytes) for index in indexes)
    return _string(topic) + struct.pack(">i", len(indexes)) + partitions


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
