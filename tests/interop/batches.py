"""Record batches (magic 2) built and read by hand, so that tests can falsify any field of them.

Base offset int64, length of the rest int32, partition leader epoch int32, magic int8, CRC-32C of the rest uint32;
attributes int16, last offset delta int32, base and max timestamp int64; producer id int64, producer epoch int16, base
sequence int32, count int32; then the records, perhaps compressed.
"""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import cramjam
from crc32c import crc32c

PREFIX = struct.Struct(">qiibI")
REST = struct.Struct(">hiqqqhii")
HEADER_SIZE = PREFIX.size + REST.size
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def varint(value: int) -> bytes:
    """Zigzag, seven bits a byte, low bits first."""
    encoded = (value << 1) ^ (value >> 63)
    out = bytearray()
    while encoded > 0x7F:
        out.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    out.append(encoded)
    return bytes(out)


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int,
    value: bytes | None,
    key: bytes | None = None,
    timestamp_delta: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    body = b"\x00" + varint(timestamp_delta) + varint(delta) + nullable(key) + nullable(value) + varint(len(headers))
    body += b"".join(nullable(name) + nullable(content) for name, content in headers)
    return varint(len(body)) + body


def compress(codec: str, data: bytes) -> bytes:
    match codec:
        case "gzip":
            return gzip.compress(data)
        case "snappy":
            return bytes(cramjam.snappy.compress_raw(data))
        case "lz4":
            # Kafka's readers accept only independent blocks; the library links them by default.
            compressor = cramjam.lz4.Compressor(level=0, content_checksum=False, block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case "zstd":
            return bytes(cramjam.zstd.compress(data))
    return data


def seal(header: dict[str, Any], body: bytes) -> bytes:
    """Return a batch with these header fields; length and CRC are computed unless they are given."""
    rest = REST.pack(*(header[name] for name in BatchHeader._fields[5:])) + body
    crc = header.get("crc", crc32c(rest))
    length = header.get("length", len(rest) + 9)
    return PREFIX.pack(header["base_offset"], length, header["partition_leader_epoch"], header["magic"], crc) + rest


def batch(
    values: Iterable[bytes | None] = (b"x",), codec: str = "none", body: bytes | None = None, **lies: Any
) -> bytes:
    """A batch of these values, keyless, stamped now. Any header field may be overridden, true or not.

    `pid`, `epoch` and `seq` are short for the producer's three fields; `timestamps` gives each record its own time.
    """
    payloads = list(values)
    timestamps: list[int] = lies.pop("timestamps", None) or [now_ms()] * len(payloads)
    keys: list[bytes | None] = lies.pop("keys", None) or [None] * len(payloads)
    base = timestamps[0] if timestamps else now_ms()
    if body is None:
        body = b"".join(
            record(delta, value, key, stamp - base)
            for delta, (value, key, stamp) in enumerate(zip(payloads, keys, timestamps, strict=True))
        )
    header = {
        "base_offset": 0,
        "partition_leader_epoch": -1,
        "magic": 2,
        "attributes": CODECS[codec],
        "last_offset_delta": len(payloads) - 1,
        "base_timestamp": base,
        "max_timestamp": max(timestamps, default=base),
        "producer_id": lies.pop("pid", -1),
        "producer_epoch": lies.pop("epoch", -1),
        "base_sequence": lies.pop("seq", -1),
        "records_count": len(payloads),
    }
    return seal(header | lies, compress(codec, body))


def headers_of(records: bytes | None) -> Iterator[BatchHeader]:
    """Yield the headers of the whole batches in a fetch response. The last may be cut by a limit; the first may not."""
    data = bytes(records or b"")
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = BatchHeader(*PREFIX.unpack_from(data, position), *REST.unpack_from(data, position + PREFIX.size))
        end = position + 12 + header.length
        if end > len(data):
            assert position > 0, "the first batch is not whole"
            return
        assert crc32c(data[position + PREFIX.size : end]) == header.crc, "a batch with a wrong checksum"
        yield header
        position = end
