"""Encodes and decodes the records of the group coordinator.

Committed offsets without metadata and expiry are encoded in parts too, which `Offsets.draft_topic` joins: each commit
writes a record per partition, and a call per field would cost too much. The bytes are those of `encode_record`.
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.base.ids import ZERO_UUID
from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.serde import RecordCodec
from moldau.wire.log_records import share_groups
from moldau.wire.log_records.offsets import RECORDS, OffsetCommitKey, OffsetCommitValue

_CODEC: Final = RecordCodec((*RECORDS, *share_groups.RECORDS))
_EXPIRING_VERSION: Final = 1
"""The only version of a committed offset that has an expire timestamp, which old clients may still send."""
decode_record: Final = _CODEC.decode


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    value = record.value
    expires = value.__class__ is OffsetCommitValue and value.expire_timestamp >= 0
    return _CODEC.encode(record, _EXPIRING_VERSION if expires else None)


# --- committed offsets in parts -----------------------------------------------------------------------------------

VALUE_VERSION: Final = OffsetCommitValue.WRITTEN
EMPTY_METADATA_LENGTH: Final = 1
"""A compact string has its length plus one."""
pack_partition: Final = struct.Struct(">i").pack
"""Packs the partition index, the end of a key."""
pack_value: Final = struct.Struct(">hqiBq").pack
"""Packs a value's version, offset, leader epoch, length of its empty metadata and commit timestamp."""
_INT16: Final = struct.Struct(">h")
_KEY_TYPE: Final = _INT16.pack(OffsetCommitKey.TYPE)
_NO_TAGS: Final = b"\x00"
_TOPIC_ID_TAG: Final = bytes((1, 0, len(ZERO_UUID)))
"""One tagged field: tag 0 and its size."""


def key_prefix(group_id: str, topic: str) -> bytes:
    """Return the bytes of a key before its partition index."""
    group, name = group_id.encode(), topic.encode()
    return b"".join((_KEY_TYPE, _INT16.pack(len(group)), group, _INT16.pack(len(name)), name))


def value_tags(topic_id: bytes) -> bytes:
    """Return the tagged fields, the end of a value."""
    return _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id
