"""Encodes and decodes the records of the group coordinator."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group import consumer_records as consumer
from moldau.coordinator.group.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.coordinator.serde import RecordCodec

_CODEC: Final = RecordCodec(
    (
        (LegacyOffsetCommitKey, OffsetCommitValue),
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (consumer.ConsumerGroupMetadataKey, consumer.ConsumerGroupMetadataValue),
        (consumer.ConsumerGroupMemberMetadataKey, consumer.ConsumerGroupMemberMetadataValue),
        (consumer.ConsumerGroupTargetAssignmentMetadataKey, consumer.ConsumerGroupTargetAssignmentMetadataValue),
        (consumer.ConsumerGroupTargetAssignmentMemberKey, consumer.ConsumerGroupTargetAssignmentMemberValue),
        (consumer.ConsumerGroupCurrentMemberAssignmentKey, consumer.ConsumerGroupCurrentMemberAssignmentValue),
        (consumer.ConsumerGroupRegularExpressionKey, consumer.ConsumerGroupRegularExpressionValue),
    )
)
encode_record: Final = _CODEC.encode
decode_record: Final = _CODEC.decode
