"""Records of `__consumer_offsets` as kafka-dump-log and kafka-console-consumer print them.

Subscriptions and assignments of a classic group are bytes to the coordinator. For consumers, this tool decodes them,
as Kafka's does.
"""

from __future__ import annotations

from typing import Any

from moldau.base.errors import MalformedData
from moldau.cli.kafka.log_dump.coordinator_lines import CoordinatorFormatter, coordinator_texts
from moldau.cli.kafka.log_dump.message_json import message_fields
from moldau.coordinator.group.serde import decode_record
from moldau.wire.consumer_protocol import PROTOCOL_TYPE, read
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription
from moldau.wire.log_records.offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from moldau.wire.records import Record
from moldau.wire.schema import Message


def offsets_texts(record: Record) -> tuple[str, str | None]:
    return coordinator_texts(decode_record, record, _value_fields)


def offsets_formatter() -> CoordinatorFormatter:
    """Format committed offsets only, in the current and in the oldest form (type 0)."""
    return CoordinatorFormatter(decode_record, (0, OffsetCommitKey.TYPE))


def group_metadata_formatter() -> CoordinatorFormatter:
    return CoordinatorFormatter(decode_record, (GroupMetadataKey.TYPE,))


def _value_fields(value: Message, version: int) -> dict[str, Any]:
    fields = message_fields(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == PROTOCOL_TYPE:
        for member, member_fields in zip(value.members, fields["members"], strict=True):
            member_fields["subscription"] = _decode(Subscription, member.subscription) or member_fields["subscription"]
            member_fields["assignment"] = _decode(Assignment, member.assignment) or member_fields["assignment"]
    return fields


def _decode(kind: type[Message], raw: bytes) -> dict[str, Any] | None:
    """Return the decoded message, or None if the bytes are not one: then they are printed as they are."""
    try:
        message, version = read(kind, raw)
    except MalformedData:
        return None
    return message_fields(message, version)
