"""The records of topics and their partitions. SCHEMA notation: `wire.schema`; framing: `records`."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.ids import ZERO_UUID
from moldau.metadata.record import MetadataRecord

NO_LEADER = -1
LEADER_UNCHANGED = -2
RECOVERY_STATE_UNCHANGED = -1


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


class PartitionChangeRecord(MetadataRecord):
    """None, LEADER_UNCHANGED or RECOVERY_STATE_UNCHANGED: the value stays."""

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
        leader_recovery_state: int = RECOVERY_STATE_UNCHANGED,
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
