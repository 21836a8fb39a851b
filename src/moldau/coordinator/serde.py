"""Encodes and decodes the records of a coordinator.

A key begins with its type in two bytes, a value with its version in two bytes; the body follows in the encoding of
`wire.codec`. A record without a value is a tombstone for its key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.codec import Encoder, decode, encoder
from moldau.wire.schema import Message, RecordKey, RecordValue

_INT16 = struct.Struct(">h")


class RecordCodec:
    """Encodes and decodes the kinds of records in `pairs`: each a class of keys and the class of its values."""

    def __init__(self, pairs: Sequence[tuple[type[RecordKey], type[RecordValue]]]) -> None:
        self._kinds = {key.TYPE: (key, value) for key, value in pairs}
        self._key_encoders: dict[type[Message], tuple[bytes, Encoder]] = {
            key: (_INT16.pack(key.TYPE), encoder(key, 0)) for key, _ in pairs
        }
        self._value_encoders: dict[tuple[type[Message], int | None], tuple[bytes, Encoder]] = {}
        """By class and version; None is the version that we write."""

    def encode(self, record: CoordinatorRecord, version: int | None = None) -> tuple[bytes, bytes | None]:
        """Return the key and value bytes for the log, the value in the version that we write, or in another."""
        key, value = record
        prefix, encode_key = self._key_encoders[key.__class__]
        key_bytes = bytearray(prefix)
        encode_key(key, key_bytes)
        if value is None:
            return bytes(key_bytes), None
        kind = value.__class__, version
        found = self._value_encoders.get(kind)
        if found is None:
            assert isinstance(value, RecordValue)
            chosen = value.WRITTEN if version is None else version
            found = self._value_encoders[kind] = _INT16.pack(chosen), encoder(value.__class__, chosen)
        prefix, encode_value = found
        value_bytes = bytearray(prefix)
        encode_value(value, value_bytes)
        return bytes(key_bytes), bytes(value_bytes)

    def decode(self, key: Buffer, value: Buffer | None) -> CoordinatorRecord | None:
        """Return the record, or None for a type that a newer version added: readers must skip it."""
        if len(key) < _INT16.size:
            raise MalformedData(f"the key of a coordinator record has {len(key)} bytes, too few for its type")
        kind = self._kinds.get(_INT16.unpack_from(key)[0])
        if kind is None:
            return None
        key_class, value_class = kind
        decoded_key = decode(key_class, key[_INT16.size :], 0)
        if value is None:
            return CoordinatorRecord(decoded_key, None)
        if len(value) < _INT16.size:
            raise MalformedData(f"{value_class.__name__} has {len(value)} bytes, too few for its version")
        version: int = _INT16.unpack_from(value)[0]
        low, high = value_class.VERSIONS
        if not low <= version <= high:
            raise MalformedData(f"{value_class.__name__} has no version {version}, only {low} to {high}")
        return CoordinatorRecord(decoded_key, decode(value_class, value[_INT16.size :], version))
