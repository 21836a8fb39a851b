"""What is known of a cluster's brokers, partitions, quorum and features, as plain values.

How these are asked for is cluster_admin.py, how they are drawn is each tool's. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from moldau.base.ids import TopicPartition, Uuid


class BrokerNode(NamedTuple):
    """A broker, or a controller where controllers were asked for."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class DescribedCluster:
    cluster_id: str
    controller_id: int
    """Of a broker: any node that takes requests for the controller. Of a controller: the active one."""
    nodes: Mapping[int, BrokerNode]


class PartitionReplicas(NamedTuple):
    leader: int
    """-1 while there is none."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicReplicas:
    name: str
    is_internal: bool
    partitions: Mapping[int, PartitionReplicas]


class Reassignment(NamedTuple):
    """A move that is under way. `replicas` holds those to be added and those to be removed, too."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Replica(NamedTuple):
    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker}"

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ReplicaLogDir(NamedTuple):
    """Where a replica lies, and where it is being moved to on the same broker."""

    current: str | None
    future: str | None


class Endpoint(NamedTuple):
    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class QuorumReplica(NamedTuple):
    """How far a voter or an observer has followed. A time is -1 where the leader knows of none."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[Endpoint, ...]]

    @property
    def leader(self) -> QuorumReplica | None:
        return next((voter for voter in self.voters if voter.replica_id == self.leader_id), None)

    def lag(self, replica: QuorumReplica) -> int:
        """How many records of the metadata log a replica is behind the leader."""
        leader = self.leader
        return 0 if leader is None else leader.log_end_offset - replica.log_end_offset


@dataclass(frozen=True, slots=True)
class Features:
    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int | None


class ElectionType(IntEnum):
    """As ElectLeaders numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


class UpgradeType(IntEnum):
    """As UpdateFeatures numbers them."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
