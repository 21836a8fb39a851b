"""Records of `__consumer_offsets` as kafka-dump-log and kafka-console-consumer print them.

What the members of a classic group say to each other is bytes to the coordinator. Where they are consumers, the tool
that reads files looks inside, as Kafka's does.
"""

from __future__ import annotations

from typing import Any

from moldau.base.errors import MalformedData
from moldau.cli.kafka.log_dump.coordinator_lines import CoordinatorFormatter, coordinator_words
from moldau.cli.kafka.log_dump.message_json import plain
from moldau.coordinator.group.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from moldau.coordinator.group.serde import decode_record
from moldau.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription, read
from moldau.wire.records import Record
from moldau.wire.schema import Message


def offsets_words(record: Record) -> tuple[str, str | None]:
    return coordinator_words(decode_record, record, _value)


def offsets_formatter() -> CoordinatorFormatter:
    """Committed offsets only, in the form of today and in that of old (type 0)."""
    return CoordinatorFormatter(decode_record, (0, OffsetCommitKey.TYPE))


def group_metadata_formatter() -> CoordinatorFormatter:
    return CoordinatorFormatter(decode_record, (GroupMetadataKey.TYPE,))


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
