"""The records of the metadata log, in Apache Kafka's own formats, so that its tools read our log.

A record's value: frame version 1, the record's type and its version, each an unsigned varint, then the body in the
flexible encoding of `wire.codec`. The schema lines are those of `wire.schema`.
"""

from __future__ import annotations

from enum import IntEnum

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.metadata.broker_records import (
    CAN_WRITE,
    CANNOT_WRITE,
    FENCE,
    UNFENCE,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from moldau.metadata.record import MetadataRecord
from moldau.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from moldau.metadata.topic_records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERY_STATE_UNCHANGED,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from moldau.wire.codec import decode_from, encode, uvarint

__all__ = [
    "CANNOT_WRITE",
    "CAN_WRITE",
    "FENCE",
    "LEADER_UNCHANGED",
    "NO_LEADER",
    "RECORD_TYPES",
    "RECOVERY_STATE_UNCHANGED",
    "UNFENCE",
    "AccessControlEntryRecord",
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "ConfigResource",
    "ControllerEndpoint",
    "ControllerFeature",
    "DelegationTokenRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "MetadataRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "QuotaEntity",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
    "decode_record",
    "encode_record",
]

FRAME_VERSION = 1


class ConfigResource(IntEnum):
    """The types of resources that have configs, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigRecord(MetadataRecord):
    __slots__ = ("name", "resource_name", "resource_type", "value")
    TYPE = 4
    VERSIONS = (0, 0)
    SCHEMA = """
        resource_type int8 0+
        resource_name string 0+
        name string 0+
        value string 0+ null=0+
    """

    def __init__(
        self, resource_type: int = 0, resource_name: str = "", name: str = "", value: str | None = None
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.name = name
        self.value = value


class FeatureLevelRecord(MetadataRecord):
    __slots__ = ("feature_level", "name")
    TYPE = 12
    VERSIONS = (0, 0)
    SCHEMA = """
        name string 0+
        feature_level int16 0+
    """

    def __init__(self, name: str = "", feature_level: int = 0) -> None:
        self.name = name
        self.feature_level = feature_level


class ProducerIdsRecord(MetadataRecord):
    __slots__ = ("broker_epoch", "broker_id", "next_producer_id")
    TYPE = 15
    VERSIONS = (0, 0)
    SCHEMA = """
        broker_id int32 0+
        broker_epoch int64 0+
        next_producer_id int64 0+
    """

    def __init__(self, broker_id: int = 0, broker_epoch: int = -1, next_producer_id: int = 0) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.next_producer_id = next_producer_id


class NoOpRecord(MetadataRecord):
    """Changes nothing, but others can wait for its offset."""

    __slots__ = ()
    TYPE = 20
    VERSIONS = (0, 0)
    SCHEMA = ""

    def __init__(self) -> None:
        """The schema reads its defaults from `__init__`, so an empty one is needed."""


RECORD_TYPES: dict[int, type[MetadataRecord]] = {
    cls.TYPE: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        FeatureLevelRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        NoOpRecord,
        RegisterControllerRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        UserScramCredentialRecord,
        RemoveUserScramCredentialRecord,
        ClientQuotaRecord,
        DelegationTokenRecord,
        RemoveDelegationTokenRecord,
    )
}


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
