"""The framing of the records of the metadata log, in Apache Kafka's own format, so that its tools read our log, and the
meanings of numbers in them. The records are in `wire/log_records/metadata`.

A record's value: frame version 1, the record's type and its version, each an unsigned varint, then the body in the
flexible encoding of `wire.codec`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.wire.codec import decode_from, encode, uvarint
from moldau.wire.log_records.metadata import RECORDS
from moldau.wire.schema import MetadataRecord

FRAME_VERSION: Final = 1
RECORD_TYPES: Final = {cls.TYPE: cls for cls in RECORDS}
NO_LEADER: Final = -1
LEADER_UNCHANGED: Final = -2
RECOVERY_STATE_UNCHANGED: Final = -1
"""Values of a PartitionChangeRecord."""
FENCE: Final = 1
UNFENCE: Final = -1
"""Values of `fenced` in a BrokerRegistrationChangeRecord; 0 means no change."""
CANNOT_WRITE: Final = 1
CAN_WRITE: Final = -1
"""Values of `cannot_write` in a BrokerRegistrationChangeRecord; 0 means no change."""


class ConfigResource(IntEnum):
    """The types of resources that have configs, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def encode_record(record: MetadataRecord) -> bytes:
    version = record.VERSIONS[1]
    out = bytearray(uvarint(FRAME_VERSION) + uvarint(record.TYPE) + uvarint(version))
    encode(record, version, out)
    return bytes(out)


def decode_record(value: Buffer) -> MetadataRecord:
    """Return the record in a value. Raise MalformedData for a type or version that this release does not support."""
    if len(value) < 3:
        raise MalformedData(f"metadata record: only {len(value)} bytes, it is truncated")
    frame, kind, version = value[0], value[1], value[2]
    cls = RECORD_TYPES.get(kind)
    if frame != FRAME_VERSION or cls is None or not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
        raise MalformedData(f"metadata record: type {kind} version {version} (frame {frame}) is not supported")
    record, _ = decode_from(cls, value, version, 3)
    return record
