"""Records of a coordinator as Kafka's tools print them: key and value as JSON, with their type and version.

kafka-dump-log prints the two beside each other, the formatters of kafka-console-consumer put both into one object.
Which records there are, and what is inside their bytes, is each log's. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from moldau.base.errors import MalformedData
from moldau.cli.kafka.log_dump.message_json import json_text, plain
from moldau.cli.kafka.tool import ToolFailed
from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.records import RecordKey
from moldau.wire.records import Record
from moldau.wire.schema import Message

DELETED: Final = "<DELETE>"
_INT16: Final = struct.Struct(">h")

Decode = Callable[[bytes, bytes | None], CoordinatorRecord | None]
ValueFields = Callable[[Message, int], dict[str, Any]]


def coordinator_words(decode: Decode, record: Record, fields: ValueFields = plain) -> tuple[str, str | None]:
    """What kafka-dump-log prints as key and as payload; of a record that cannot be read, only why not."""
    if record.key is None:
        raise MalformedData(f"the record at offset {record.offset} has no key, as those of coordinators have")
    try:
        found = decode(record.key, record.value)
    except MalformedData as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    if found is None:
        return f"Unknown record type {_number(record.key)} at offset {record.offset}, skipping.", None
    assert isinstance(found.key, RecordKey)
    key = json_text({"type": str(found.key.TYPE), "data": plain(found.key, 0)})
    if found.value is None or record.value is None:
        return key, DELETED
    version = _number(record.value)
    return key, json_text({"version": str(version), "data": fields(found.value, version)})


class CoordinatorFormatter:
    """Records as the console consumer's formatters print them: one after the other, with nothing in between."""

    def __init__(self, decode: Decode, types: Collection[int]) -> None:
        self._decode = decode
        self._types = types

    def lines(self, records: Iterable[Any]) -> bytes:
        return b"".join(self._object(record.key(), record.value(), record.offset()) for record in records)

    def _object(self, key: bytes | None, value: bytes | None, offset: int) -> bytes:
        if key is None:
            return b""
        try:
            found = self._decode(key, value)
        except MalformedData as error:
            raise ToolFailed(f"Could not read record at offset {offset} due to: {error}") from error
        if found is None or _number(key) not in self._types:
            return b""
        shown: dict[str, Any] = {"key": {"type": _number(key), "data": plain(found.key, 0)}, "value": None}
        if found.value is not None and value is not None:
            version = _number(value)
            shown["value"] = {"version": version, "data": plain(found.value, version)}
        return json_text(shown).encode()


def _number(raw: bytes) -> int:
    """The two bytes that a key's type and a value's version stand in."""
    number: int = _INT16.unpack_from(raw)[0]
    return number
