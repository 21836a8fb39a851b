"""Brokers, partitions, quorum and features of a cluster as plain values.

cluster_admin.py requests them; each tool formats them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from moldau.base.ids import TopicPartition, Uuid


class BrokerNode(NamedTuple):
    """A broker, or a controller if controllers were requested."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class DescribedCluster:
    cluster_id: str
    controller_id: int
    """From a broker: any node that takes requests for the controller. From a controller: the active one."""
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


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The brokers that are up, and all topics that the user may see."""

    cluster_id: str
    controller_id: int
    """Any broker, where the controllers are a quorum of their own."""
    nodes: Mapping[int, BrokerNode]
    topics: Mapping[str, TopicReplicas]


class Reassignment(NamedTuple):
    """A move in progress. `replicas` includes those to be added and those to be removed."""

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
    """The directory of a replica, and the one it is being moved to on the same broker."""

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
    """The position of a voter or an observer. A time is -1 if the leader does not know it."""

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
        """Return how many records of the metadata log a replica is behind the leader."""
        leader = self.leader
        return 0 if leader is None else leader.log_end_offset - replica.log_end_offset


@dataclass(frozen=True, slots=True)
class Features:
    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int | None


class ElectionType(IntEnum):
    """The numbers of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class UpgradeType(IntEnum):
    """The numbers of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
