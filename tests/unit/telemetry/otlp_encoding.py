"""Writes OpenTelemetry's metrics as Protobuf, from the published field numbers, independent of the reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def block(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(key: str, value: str | int | bool) -> bytes:
    if isinstance(value, bool):
        any_value = varint(2 << 3) + varint(value)
    elif isinstance(value, int):
        any_value = varint(3 << 3) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    else:
        any_value = block(1, value.encode())
    return block(1, key.encode()) + block(2, any_value)


def point(value: float, labels: Mapping[str, str | int | bool] | None = None) -> bytes:
    out = varint(2 << 3 | 1) + struct.pack("<Q", 1) + varint(3 << 3 | 1) + struct.pack("<Q", 2)
    if isinstance(value, int):
        out += varint(6 << 3 | 1) + struct.pack("<q", value)
    else:
        out += varint(4 << 3 | 1) + struct.pack("<d", value)
    return out + b"".join(block(7, attribute(key, each)) for key, each in (labels or {}).items())


def gauge(name: str, *points: bytes) -> bytes:
    return block(1, name.encode()) + block(3, b"ms") + block(5, b"".join(block(1, each) for each in points))


def cumulative_sum(name: str, *points: bytes, temporality: int = 2) -> bytes:
    content = b"".join(block(1, each) for each in points) + varint(2 << 3) + varint(temporality)
    return block(1, name.encode()) + block(7, content + varint(3 << 3) + varint(1))


def histogram(name: str) -> bytes:
    return block(1, name.encode()) + block(9, block(1, varint(4 << 3 | 1) + struct.pack("<Q", 5)))


def payload(*metrics: bytes, resource: Mapping[str, str] | None = None) -> bytes:
    attributes = b"".join(block(1, attribute(key, value)) for key, value in (resource or {}).items())
    scope = block(1, block(1, b"a scope")) + b"".join(block(2, each) for each in metrics)
    return block(1, block(1, attributes) + block(2, scope))
