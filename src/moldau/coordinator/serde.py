"""Records of a coordinator to bytes and back.

A key begins with two bytes that tell its type, a value with two bytes that tell its version; the body follows in the
encoding of `wire.codec`. A record without a value takes back what its key stood for.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from moldau.base.errors import MalformedData
from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.records import RecordKey, RecordValue
from moldau.wire.codec import decode, encode
from moldau.wire.schema import Buffer

_INT16 = struct.Struct(">h")


class RecordCodec:
    """Made from the kinds of records that a coordinator keeps: for each class of keys, that of its values."""

    def __init__(self, pairs: Sequence[tuple[type[RecordKey], type[RecordValue]]]) -> None:
        self._kinds = {key.TYPE: (key, value) for key, value in pairs}

    def encode(self, record: CoordinatorRecord, version: int | None = None) -> tuple[bytes, bytes | None]:
        """The key and the value as they stand in the log. The value itself knows its version, unless one is given."""
        key, value = record
        assert isinstance(key, RecordKey)
        key_bytes = bytearray(_INT16.pack(key.TYPE))
        encode(key, 0, key_bytes)
        if value is None:
            return bytes(key_bytes), None
        assert isinstance(value, RecordValue)
        if version is None:
            version = value.written_version()
        value_bytes = bytearray(_INT16.pack(version))
        encode(value, version, value_bytes)
        return bytes(key_bytes), bytes(value_bytes)

    def decode(self, key: Buffer, value: Buffer | None) -> CoordinatorRecord | None:
        """The record; None for a kind younger than this code, which readers must skip."""
        if len(key) < _INT16.size:
            raise MalformedData("a coordinator record without its type")
        kind = self._kinds.get(_INT16.unpack_from(key)[0])
        if kind is None:
            return None
        key_class, value_class = kind
        decoded = decode(key_class, key[_INT16.size :], 0)
        if value is None:
            return CoordinatorRecord(decoded, None)
        if len(value) < _INT16.size:
            raise MalformedData(f"{value_class.__name__} without its version")
        version: int = _INT16.unpack_from(value)[0]
        low, high = value_class.VERSIONS
        if not low <= version <= high:
            raise MalformedData(f"{value_class.__name__} has no version {version}")
        return CoordinatorRecord(decoded, decode(value_class, value[_INT16.size :], version))
