"""Encodes and decodes the records of the group coordinator."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.serde import RecordCodec
from moldau.wire.log_records.offsets import RECORDS, OffsetCommitValue

_CODEC: Final = RecordCodec(RECORDS)
_EXPIRING_VERSION: Final = 1
"""The only version of a committed offset that has an expire timestamp, which old clients may still send."""
decode_record: Final = _CODEC.decode


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    value = record.value
    expires = value.__class__ is OffsetCommitValue and value.expire_timestamp >= 0
    return _CODEC.encode(record, _EXPIRING_VERSION if expires else None)
