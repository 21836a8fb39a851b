"""Records of `__consumer_offsets` as kafka-dump-log prints them: key and value as JSON, with their type and version.

What the members of a classic group say to each other is bytes to the coordinator. Where they are consumers, the tool
looks inside, as Kafka's does.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from moldau.base.errors import MalformedData
from moldau.cli.kafka.control_records import json_text, plain
from moldau.coordinator.group.records import GroupMetadataValue, RecordKey
from moldau.coordinator.group.serde import decode_record
from moldau.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription, read
from moldau.wire.records import Record
from moldau.wire.schema import Message

DELETED: Final = "<DELETE>"
_INT16: Final = struct.Struct(">h")


def offsets_words(record: Record) -> tuple[str, str | None]:
    """What is printed as key and as payload; of a record that cannot be read, only why not."""
    if record.key is None:
        raise MalformedData(f"the record at offset {record.offset} has no key, as those of __consumer_offsets have")
    try:
        found = decode_record(record.key, record.value)
    except MalformedData as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    if found is None:
        return f"Unknown record type {_number(record.key)} at offset {record.offset}, skipping.", None
    assert isinstance(found.key, RecordKey)
    key = json_text({"type": str(found.key.TYPE), "data": plain(found.key, 0)})
    if found.value is None or record.value is None:
        return key, DELETED
    version = _number(record.value)
    return key, json_text({"version": str(version), "data": _value(found.value, version)})


def _number(raw: bytes) -> int:
    """The two bytes that a key's type and a value's version stand in."""
    number: int = _INT16.unpack_from(raw)[0]
    return number


def _value(value: Message, version: int) -> dict[str, Any]:
    shown = plain(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == PROTOCOL_TYPE:
        for member, told in zip(value.members, shown["members"], strict=True):
            told["subscription"] = _inside(Subscription, member.subscription) or told["subscription"]
            told["assignment"] = _inside(Assignment, member.assignment) or told["assignment"]
    return shown


def _inside(kind: type[Message], raw: bytes) -> dict[str, Any] | None:
    """None for bytes that are no such message: they are the members' own affair and stay bytes."""
    try:
        message, version = read(kind, raw)
    except MalformedData:
        return None
    return plain(message, version)
