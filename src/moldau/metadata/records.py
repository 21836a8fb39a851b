"""The records of the metadata log, in Apache's own formats, so that its tools read our log.

A record's value: frame version 1, the record's type and its version, each an unsigned varint, then the body in the
flexible encoding of `wire.codec`. The schema lines are those of `wire.schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

from moldau.base.errors import MalformedData
from moldau.base.ids import ZERO_UUID
from moldau.wire.codec import decode_from, encode, uvarint
from moldau.wire.schema import Buffer, Message

FRAME_VERSION = 1
NO_LEADER = -1
LEADER_UNCHANGED = -2


class ConfigResource(IntEnum):
    """What a config belongs to, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class MetadataRecord(Message):
    __slots__ = ()
    TYPE: ClassVar[int]
    FLEXIBLE = 0


class BrokerEndpoint(Message):
    __slots__ = ("host", "name", "port", "security_protocol")
    SCHEMA = """
        name string 0+
        host string 0+
        port uint16 0+
        security_protocol int16 0+
    """

    def __init__(self, name: str = "", host: str = "", port: int = 0, security_protocol: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.security_protocol = security_protocol


class BrokerFeature(Message):
    __slots__ = ("max_supported_version", "min_supported_version", "name")
    SCHEMA = """
        name string 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
    """

    def __init__(self, name: str = "", min_supported_version: int = 0, max_supported_version: int = 0) -> None:
        self.name = name
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class RegisterBrokerRecord(MetadataRecord):
    __slots__ = (
        "broker_epoch",
        "broker_id",
        "end_points",
        "features",
        "fenced",
        "in_controlled_shutdown",
        "incarnation_id",
        "is_migrating_zk_broker",
        "log_dirs",
        "rack",
    )
    TYPE = 0
    VERSIONS = (0, 3)
    SCHEMA = """
        broker_id int32 0+
        is_migrating_zk_broker bool 2+
        incarnation_id uuid 0+
        broker_epoch int64 0+
        end_points []BrokerEndpoint 0+
        features []BrokerFeature 0+
        rack string 0+ null=0+
        fenced bool 0+
        in_controlled_shutdown bool 1+
        log_dirs []uuid 3+ tag=0
    """

    def __init__(
        self,
        broker_id: int = 0,
        is_migrating_zk_broker: bool = False,
        incarnation_id: bytes = ZERO_UUID,
        broker_epoch: int = 0,
        end_points: Sequence[BrokerEndpoint] = (),
        features: Sequence[BrokerFeature] = (),
        rack: str | None = None,
        fenced: bool = True,
        in_controlled_shutdown: bool = False,
        log_dirs: Sequence[bytes] = (),
    ) -> None:
        self.broker_id = broker_id
        self.is_migrating_zk_broker = is_migrating_zk_broker
        self.incarnation_id = incarnation_id
        self.broker_epoch = broker_epoch
        self.end_points = end_points
        self.features = features
        self.rack = rack
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = log_dirs


class TopicRecord(MetadataRecord):
    __slots__ = ("name", "topic_id")
    TYPE = 2
    VERSIONS = (0, 0)
    SCHEMA = """
        name string 0+
        topic_id uuid 0+
    """

    def __init__(self, name: str = "", topic_id: bytes = ZERO_UUID) -> None:
        self.name = name
        self.topic_id = topic_id


class PartitionRecord(MetadataRecord):
    __slots__ = (
        "adding_replicas",
        "directories",
        "eligible_leader_replicas",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovery_state",
        "partition_epoch",
        "partition_id",
        "removing_replicas",
        "replicas",
        "topic_id",
    )
    TYPE = 3
    VERSIONS = (0, 2)
    SCHEMA = """
        partition_id int32 0+
        topic_id uuid 0+
        replicas []int32 0+
        isr []int32 0+
        removing_replicas []int32 0+
        adding_replicas []int32 0+
        leader int32 0+
        leader_recovery_state int8 0+ tag=0
        leader_epoch int32 0+
        partition_epoch int32 0+
        directories []uuid 1+
        eligible_leader_replicas []int32 2+ null=2+ tag=1
        last_known_elr []int32 2+ null=2+ tag=2
    """

    def __init__(
        self,
        partition_id: int = -1,
        topic_id: bytes = ZERO_UUID,
        replicas: Sequence[int] = (),
        isr: Sequence[int] = (),
        removing_replicas: Sequence[int] = (),
        adding_replicas: Sequence[int] = (),
        leader: int = NO_LEADER,
        leader_recovery_state: int = 0,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        directories: Sequence[bytes] = (),
        eligible_leader_replicas: Sequence[int] | None = None,
        last_known_elr: Sequence[int] | None = None,
    ) -> None:
        self.partition_id = partition_id
        self.topic_id = topic_id
        self.replicas = replicas
        self.isr = isr
        self.removing_replicas = removing_replicas
        self.adding_replicas = adding_replicas
        self.leader = leader
        self.leader_recovery_state = leader_recovery_state
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.directories = directories
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr


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


class PartitionChangeRecord(MetadataRecord):
    __slots__ = (
        "adding_replicas",
        "directories",
        "eligible_leader_replicas",
        "isr",
        "last_known_elr",
        "leader",
        "leader_recovery_state",
        "partition_id",
        "removing_replicas",
        "replicas",
        "topic_id",
    )
    TYPE = 5
    VERSIONS = (0, 2)
    SCHEMA = """
        partition_id int32 0+
        topic_id uuid 0+
        isr []int32 0+ null=0+ tag=0
        leader int32 0+ tag=1
        replicas []int32 0+ null=0+ tag=2
        removing_replicas []int32 0+ null=0+ tag=3
        adding_replicas []int32 0+ null=0+ tag=4
        leader_recovery_state int8 0+ tag=5
        directories []uuid 1+ null=1+ tag=8
        eligible_leader_replicas []int32 2+ null=2+ tag=6
        last_known_elr []int32 2+ null=2+ tag=7
    """

    def __init__(
        self,
        partition_id: int = -1,
        topic_id: bytes = ZERO_UUID,
        isr: Sequence[int] | None = None,
        leader: int = LEADER_UNCHANGED,
        replicas: Sequence[int] | None = None,
        removing_replicas: Sequence[int] | None = None,
        adding_replicas: Sequence[int] | None = None,
        leader_recovery_state: int = -1,
        directories: Sequence[bytes] | None = None,
        eligible_leader_replicas: Sequence[int] | None = None,
        last_known_elr: Sequence[int] | None = None,
    ) -> None:
        self.partition_id = partition_id
        self.topic_id = topic_id
        self.isr = isr
        self.leader = leader
        self.replicas = replicas
        self.removing_replicas = removing_replicas
        self.adding_replicas = adding_replicas
        self.leader_recovery_state = leader_recovery_state
        self.directories = directories
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr


class RemoveTopicRecord(MetadataRecord):
    __slots__ = ("topic_id",)
    TYPE = 9
    VERSIONS = (0, 0)
    SCHEMA = "topic_id uuid 0+"

    def __init__(self, topic_id: bytes = ZERO_UUID) -> None:
        self.topic_id = topic_id


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


RECORD_TYPES: dict[int, type[MetadataRecord]] = {
    cls.TYPE: cls
    for cls in (
        RegisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        RemoveTopicRecord,
        FeatureLevelRecord,
        ProducerIdsRecord,
    )
}


def encode_record(record: MetadataRecord) -> bytes:
    version = record.VERSIONS[1]
    out = bytearray(uvarint(FRAME_VERSION) + uvarint(record.TYPE) + uvarint(version))
    encode(record, version, out)
    return bytes(out)


def decode_record(value: Buffer) -> MetadataRecord:
    """The record in a value; MalformedData for a type or version that this release does not know."""
    if len(value) < 3:
        raise MalformedData("a metadata record is cut short")
    frame, kind, version = value[0], value[1], value[2]
    cls = RECORD_TYPES.get(kind)
    if frame != FRAME_VERSION or cls is None or not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
        raise MalformedData(f"metadata record type {kind} version {version} (frame {frame}) is not known here")
    record, _ = decode_from(cls, value, version, 3)
    return record
