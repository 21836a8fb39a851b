"""The records of consumer groups (KIP-848) in `__consumer_offsets`, in Apache Kafka's formats.

The log has the whole state of such a group: its epoch, its members, the target and the current assignment of each
member, and the topics that match each regular expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.ids import ZERO_UUID
from moldau.coordinator.records import RecordKey, RecordValue
from moldau.wire.schema import Message


class ConsumerGroupMetadataKey(RecordKey):
    __slots__ = ("group_id",)
    TYPE = 3
    SCHEMA = """
        group_id string 0+
    """

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.group_id = group_id


class ConsumerGroupMetadataValue(RecordValue):
    """The group's epoch, and a hash of its topics that shows whether they have changed since."""

    __slots__ = ("epoch", "metadata_hash")
    VERSIONS = (0, 0)
    FLEXIBLE = 0
    SCHEMA = """
        epoch int32 0+
        metadata_hash int64 0+ tag=0
    """

    def __init__(
        self,
        epoch: int = 0,
        metadata_hash: int = 0,
    ) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash


class ClassicProtocol(Message):
    __slots__ = ("metadata", "name")
    SCHEMA = """
        name string 0+
        metadata bytes 0+
    """

    def __init__(
        self,
        name: str = "",
        metadata: bytes = b"",
    ) -> None:
        self.name = name
        self.metadata = metadata


class ClassicMemberMetadata(Message):
    """The additional metadata of a member that uses the classic protocol."""

    __slots__ = ("session_timeout_ms", "supported_protocols")
    SCHEMA = """
        session_timeout_ms int32 0+
        supported_protocols []ClassicProtocol 0+
    """

    def __init__(
        self,
        session_timeout_ms: int = 0,
        supported_protocols: Sequence[ClassicProtocol] = (),
    ) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.supported_protocols = supported_protocols


DEFAULT_CLASSIC_METADATA: Final = ClassicMemberMetadata()
"""Apache Kafka reads a missing tag as this value, a classic member; for a consumer member, null must be written."""


class ConsumerGroupMemberMetadataKey(RecordKey):
    __slots__ = ("group_id", "member_id")
    TYPE = 5
    SCHEMA = """
        group_id string 0+
        member_id string 0+
    """

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id


class ConsumerGroupMemberMetadataValue(RecordValue):
    """What a member sent about itself."""

    __slots__ = (
        "classic_member_metadata",
        "client_host",
        "client_id",
        "instance_id",
        "rack_id",
        "rebalance_timeout_ms",
        "server_assignor",
        "subscribed_topic_names",
        "subscribed_topic_regex",
    )
    VERSIONS = (0, 0)
    FLEXIBLE = 0
    SCHEMA = """
        instance_id string 0+ null=0+
        rack_id string 0+ null=0+
        client_id string 0+
        client_host string 0+
        subscribed_topic_names []string 0+
        subscribed_topic_regex string 0+ null=0+
        rebalance_timeout_ms int32 0+
        server_assignor string 0+ null=0+
        classic_member_metadata ClassicMemberMetadata 0+ null=0+ tag=0
    """

    def __init__(
        self,
        instance_id: str | None = None,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: Sequence[str] = (),
        subscribed_topic_regex: str | None = None,
        rebalance_timeout_ms: int = -1,
        server_assignor: str | None = None,
        classic_member_metadata: ClassicMemberMetadata | None = DEFAULT_CLASSIC_METADATA,
    ) -> None:
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.server_assignor = server_assignor
        self.classic_member_metadata = classic_member_metadata


class ConsumerGroupTargetAssignmentMetadataKey(RecordKey):
    __slots__ = ("group_id",)
    TYPE = 6
    SCHEMA = """
        group_id string 0+
    """

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.group_id = group_id


class ConsumerGroupTargetAssignmentMetadataValue(RecordValue):
    """The group epoch for which the target assignment was computed."""

    __slots__ = ("assignment_epoch", "assignment_timestamp")
    VERSIONS = (0, 0)
    FLEXIBLE = 0
    SCHEMA = """
        assignment_epoch int32 0+
        assignment_timestamp int64 0+ tag=0
    """

    def __init__(
        self,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
    ) -> None:
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp = assignment_timestamp


class TopicPartition(Message):
    __slots__ = ("partitions", "topic_id")
    SCHEMA = """
        topic_id uuid 0+
        partitions []int32 0+
    """

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: Sequence[int] = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions = partitions


class ConsumerGroupTargetAssignmentMemberKey(RecordKey):
    __slots__ = ("group_id", "member_id")
    TYPE = 7
    SCHEMA = """
        group_id string 0+
        member_id string 0+
    """

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id


class ConsumerGroupTargetAssignmentMemberValue(RecordValue):
    """The target assignment of a member."""

    __slots__ = ("topic_partitions",)
    VERSIONS = (0, 0)
    FLEXIBLE = 0
    SCHEMA = """
        topic_partitions []TopicPartition 0+
    """

    def __init__(
        self,
        topic_partitions: Sequence[TopicPartition] = (),
    ) -> None:
        self.topic_partitions = topic_partitions


class TopicPartitions(Message):
    __slots__ = ("assignment_epochs", "partitions", "topic_id")
    SCHEMA = """
        topic_id uuid 0+
        partitions []int32 0+
        assignment_epochs []int32 0+ null=0+ tag=0
    """

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: Sequence[int] = (),
        assignment_epochs: Sequence[int] | None = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions = partitions
        self.assignment_epochs = assignment_epochs


class ConsumerGroupCurrentMemberAssignmentKey(RecordKey):
    __slots__ = ("group_id", "member_id")
    TYPE = 8
    SCHEMA = """
        group_id string 0+
        member_id string 0+
    """

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id


class ConsumerGroupCurrentMemberAssignmentValue(RecordValue):
    """The current assignment of a member and its progress towards the target."""

    __slots__ = (
        "assigned_partitions",
        "member_epoch",
        "partitions_pending_revocation",
        "previous_member_epoch",
        "state",
    )
    VERSIONS = (0, 0)
    FLEXIBLE = 0
    SCHEMA = """
        member_epoch int32 0+
        previous_member_epoch int32 0+
        state int8 0+
        assigned_partitions []TopicPartitions 0+
        partitions_pending_revocation []TopicPartitions 0+
    """

    def __init__(
        self,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: Sequence[TopicPartitions] = (),
        partitions_pending_revocation: Sequence[TopicPartitions] = (),
    ) -> None:
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.assigned_partitions = assigned_partitions
        self.partitions_pending_revocation = partitions_pending_revocation


class ConsumerGroupRegularExpressionKey(RecordKey):
    __slots__ = ("group_id", "regular_expression")
    TYPE = 16
    SCHEMA = """
        group_id string 0+
        regular_expression string 0+
    """

    def __init__(
        self,
        group_id: str = "",
        regular_expression: str = "",
    ) -> None:
        self.group_id = group_id
        self.regular_expression = regular_expression


class ConsumerGroupRegularExpressionValue(RecordValue):
    """The topics that matched a regular expression at that version of the metadata."""

    __slots__ = ("timestamp", "topics", "version")
    VERSIONS = (0, 0)
    FLEXIBLE = 0
    SCHEMA = """
        topics []string 0+
        version int64 0+
        timestamp int64 0+
    """

    def __init__(
        self,
        topics: Sequence[str] = (),
        version: int = 0,
        timestamp: int = 0,
    ) -> None:
        self.topics = topics
        self.version = version
        self.timestamp = timestamp
