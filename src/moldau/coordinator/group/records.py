"""The records of committed offsets and classic groups in `__consumer_offsets`, in Apache Kafka's formats. The records
of consumer groups are in `consumer_records`; `serde` encodes and decodes them all.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.ids import ZERO_UUID
from moldau.coordinator.records import RecordKey, RecordValue
from moldau.wire.schema import Message


class OffsetCommitKey(RecordKey):
    __slots__ = ("group", "partition", "topic")
    TYPE = 1
    SCHEMA = """
        group string 0+
        topic string 0+
        partition int32 0+
    """

    def __init__(self, group: str = "", topic: str = "", partition: int = 0) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition


class LegacyOffsetCommitKey(OffsetCommitKey):
    """The key that very old brokers wrote; the body is the same."""

    __slots__ = ("group", "partition", "topic")
    TYPE = 0


class OffsetCommitValue(RecordValue):
    __slots__ = ("commit_timestamp", "expire_timestamp", "leader_epoch", "metadata", "offset", "topic_id")
    VERSIONS = (0, 4)
    FLEXIBLE = 4
    WRITTEN = 4
    SCHEMA = """
        offset int64 0+
        leader_epoch int32 3+
        metadata string 0+
        commit_timestamp int64 0+
        expire_timestamp int64 1-1
        topic_id uuid 4+ tag=0
    """

    def __init__(
        self,
        offset: int = 0,
        leader_epoch: int = -1,
        metadata: str = "",
        commit_timestamp: int = 0,
        expire_timestamp: int = -1,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.expire_timestamp = expire_timestamp
        self.topic_id = topic_id

    def written_version(self) -> int:
        """Return 1 if there is an expire timestamp, which old clients may still send: only version 1 has that field."""
        return self.WRITTEN if self.expire_timestamp < 0 else 1


class GroupMetadataKey(RecordKey):
    __slots__ = ("group",)
    TYPE = 2
    SCHEMA = """
        group string 0+
    """

    def __init__(self, group: str = "") -> None:
        self.group = group


class MemberMetadata(Message):
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "member_id",
        "rebalance_timeout",
        "session_timeout",
        "subscription",
    )
    SCHEMA = """
        member_id string 0+
        group_instance_id string 3+ null=3+
        client_id string 0+
        client_host string 0+
        rebalance_timeout int32 1+
        session_timeout int32 0+
        subscription bytes 0+
        assignment bytes 0+
    """

    def __init__(
        self,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout: int = -1,
        session_timeout: int = 0,
        subscription: bytes = b"",
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout = rebalance_timeout
        self.session_timeout = session_timeout
        self.subscription = subscription
        self.assignment = assignment


class GroupMetadataValue(RecordValue):
    __slots__ = ("current_state_timestamp", "generation", "leader", "members", "protocol", "protocol_type")
    VERSIONS = (0, 4)
    FLEXIBLE = 4
    WRITTEN = 3
    SCHEMA = """
        protocol_type string 0+
        generation int32 0+
        protocol string 0+ null=0+
        leader string 0+ null=0+
        current_state_timestamp int64 2+
        members []MemberMetadata 0+
    """

    def __init__(
        self,
        protocol_type: str = "",
        generation: int = 0,
        protocol: str | None = None,
        leader: str | None = None,
        current_state_timestamp: int = -1,
        members: Sequence[MemberMetadata] = (),
    ) -> None:
        self.protocol_type = protocol_type
        self.generation = generation
        self.protocol = protocol
        self.leader = leader
        self.current_state_timestamp = current_state_timestamp
        self.members = members
