"""Records of a coordinator as Kafka's tools print them: key and value as JSON, with their type and version.

kafka-dump-log prints the two beside each other, the formatters of kafka-console-consumer put both into one object.
The records of each log are defined elsewhere. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from moldau.base.errors import MalformedData
from moldau.cli.kafka.log_dump.message_json import json_text, message_fields
from moldau.cli.kafka.tool import ToolFailed
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.records import Record
from moldau.wire.schema import Message, RecordKey

DELETED: Final = "<DELETE>"
_INT16: Final = struct.Struct(">h")

Decode = Callable[[bytes, bytes | None], CoordinatorRecord | None]
ValueFields = Callable[[Message, int], dict[str, Any]]


def coordinator_texts(decode: Decode, record: Record, fields: ValueFields = message_fields) -> tuple[str, str | None]:
    """Return what kafka-dump-log prints as key and as payload; for a record that cannot be decoded, the reason."""
    if record.key is None:
        raise MalformedData(f"the record at offset {record.offset} has no key; a coordinator's record must have one")
    try:
        decoded = decode(record.key, record.value)
    except MalformedData as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    if decoded is None:
        return f"Unknown record type {_number(record.key)} at offset {record.offset}, skipping.", None
    assert isinstance(decoded.key, RecordKey)
    key = json_text({"type": str(decoded.key.TYPE), "data": message_fields(decoded.key, 0)})
    if decoded.value is None or record.value is None:
        return key, DELETED
    version = _number(record.value)
    return key, json_text({"version": str(version), "data": fields(decoded.value, version)})


class CoordinatorFormatter:
    """Prints records like the console consumer's formatters: one after the other, without separator."""

    def __init__(self, decode: Decode, types: Collection[int]) -> None:
        self._decode = decode
        self._types = types

    def lines(self, records: Iterable[Any]) -> bytes:
        return b"".join(self._object(record.key(), record.value(), record.offset()) for record in records)

    def _object(self, key: bytes | None, value: bytes | None, offset: int) -> bytes:
        if key is None:
            return b""
        try:
            decoded = self._decode(key, value)
        except MalformedData as error:
            raise ToolFailed(f"Could not read record at offset {offset} due to: {error}") from error
        if decoded is None or _number(key) not in self._types:
            return b""
        content: dict[str, Any] = {"key": {"type": _number(key), "data": message_fields(decoded.key, 0)}, "value": None}
        if decoded.value is not None and value is not None:
            version = _number(value)
            content["value"] = {"version": version, "data": message_fields(decoded.value, version)}
        return json_text(content).encode()


def _number(raw: bytes) -> int:
    """Return the number in the first two bytes: the type of a key, the version of a value."""
    number: int = _INT16.unpack_from(raw)[0]
    return number
