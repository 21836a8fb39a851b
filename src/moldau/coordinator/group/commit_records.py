"""The records of committed offsets as bytes, written without a call per field: each commit writes one per partition.

The bytes are those of `serde.encode_record`.
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.base.ids import ZERO_UUID
from moldau.coordinator.group.records import OffsetCommitKey, OffsetCommitValue

VALUE_VERSION: Final = OffsetCommitValue.WRITTEN
EMPTY_METADATA: Final = 1
"""The length of an empty compact string."""
pack_partition: Final = struct.Struct(">i").pack
"""Packs the partition index, the end of a key."""
pack_value: Final = struct.Struct(">hqiBq").pack
"""Packs a value's version, offset, leader epoch, length of its empty metadata and commit timestamp."""
_STRING_LENGTH: Final = struct.Struct(">h")
_KEY_TYPE: Final = _STRING_LENGTH.pack(OffsetCommitKey.TYPE)
_NO_TAGS: Final = b"\x00"
_TOPIC_ID_TAG: Final = bytes((1, 0, len(ZERO_UUID)))
"""One tagged field: tag 0 and its size."""


def key_prefix(group_id: str, topic: str) -> bytes:
    """Return the bytes of a key before its partition index. Raise struct.error if a name is too long."""
    group, name = group_id.encode(), topic.encode()
    return b"".join((_KEY_TYPE, _STRING_LENGTH.pack(len(group)), group, _STRING_LENGTH.pack(len(name)), name))


def value_tags(topic_id: bytes) -> bytes:
    """Return the tagged fields, the end of a value."""
    return _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id
