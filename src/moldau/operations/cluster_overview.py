"""The brokers, the controllers and the partitions of a cluster with what is wrong, from its responses. Pure.

Counts, states and notes are made here; `moldau cluster describe` draws them, the console sends them to its pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.base.listeners import host_and_port
from moldau.client.admin.cluster_values import (
    DescribedCluster,
    PartitionReplicas,
    Quorum,
    Reassignment,
    TopicReplicas,
)
from moldau.client.admin.group_values import DescribedGroup, Member

MEMBER_ID_TAIL = 6


class BrokerRow(NamedTuple):
    id: int
    address: str | None
    rack: str | None
    state: str
    """`up`, `fenced` or `unregistered`. `unregistered` means: partitions have replicas on it, but it is not in the
    metadata."""
    leads: int
    replicas: int


class ControllerRow(NamedTuple):
    id: int
    role: str
    address: str | None
    log_end: int
    lag: int
    caught_up_ms_ago: int | None


class PartitionRow(NamedTuple):
    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    reader: str | None
    note: str

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class Health(NamedTuple):
    """How many partitions are in trouble, in all topics of the cluster: those that are not shown count too."""

    under_replicated: int
    leaderless: int


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    cluster_id: str
    brokers: Sequence[BrokerRow]
    quorum: Quorum | None
    controllers: Sequence[ControllerRow]
    partitions: Sequence[PartitionRow]
    group: DescribedGroup | None
    idle: Sequence[str]
    """Members of the group that read nothing."""
    health: Health

    @property
    def shows_all_troubles(self) -> bool:
        under_replicated = sum(row.is_under_replicated for row in self.partitions)
        leaderless = sum(row.leader is None for row in self.partitions)
        return self.health == (under_replicated, leaderless)

    @property
    def topic_count(self) -> int:
        return len({row.topic for row in self.partitions})


def health_of(topics: Iterable[TopicReplicas]) -> Health:
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return Health(
        sum(len(partition.isr) < len(partition.replicas) for partition in partitions),
        sum(partition.leader < 0 for partition in partitions),
    )


def broker_rows(cluster: DescribedCluster, topics: Iterable[TopicReplicas]) -> list[BrokerRow]:
    """Return all brokers, including unregistered ones that still have replicas."""
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    leads = Counter(partition.leader for partition in partitions)
    holds = Counter(broker for partition in partitions for broker in partition.replicas)
    rows = []
    for broker in sorted({*cluster.nodes, *holds}):
        node = cluster.nodes.get(broker)
        if node is None:
            rows.append(BrokerRow(broker, None, None, "unregistered", leads[broker], holds[broker]))
            continue
        state = "fenced" if node.is_fenced else "up"
        rows.append(
            BrokerRow(broker, host_and_port(node.host, node.port), node.rack, state, leads[broker], holds[broker])
        )
    return rows


def controller_rows(quorum: Quorum, now_ms: int) -> list[ControllerRow]:
    """Return the leader first, then the voters, then the observers."""
    leader_first = sorted(quorum.voters, key=lambda voter: (voter is not quorum.leader, voter.replica_id))
    rows = []
    replicas = [(voter, "voter") for voter in leader_first] + [(observer, "observer") for observer in quorum.observers]
    for replica, role in replicas:
        endpoints = quorum.endpoints.get(replica.replica_id, ())
        address = host_and_port(endpoints[0].host, endpoints[0].port) if endpoints else None
        ago = max(0, now_ms - replica.last_caught_up_ms) if replica.last_caught_up_ms >= 0 else None
        rows.append(
            ControllerRow(
                replica.replica_id,
                "leader" if replica is quorum.leader else role,
                address,
                replica.log_end_offset,
                quorum.lag(replica),
                ago,
            )
        )
    return rows


def partition_rows(
    topics: Iterable[TopicReplicas],
    moves: Mapping[TopicPartition, Reassignment],
    readers: Mapping[TopicPartition, str],
) -> list[PartitionRow]:
    rows = []
    for topic in topics:
        for index, partition in topic.partitions.items():
            topic_partition = TopicPartition(topic.name, index)
            leader = partition.leader if partition.leader >= 0 else None
            reader, note = readers.get(topic_partition), note_of(partition, moves.get(topic_partition))
            rows.append(PartitionRow(topic.name, index, leader, partition.replicas, partition.isr, reader, note))
    return rows


def note_of(partition: PartitionReplicas, move: Reassignment | None) -> str:
    """Return in a few words what is wrong with a partition. Return an empty text if nothing is wrong."""
    notes = []
    if partition.leader < 0:
        notes.append("offline")
    if behind := [str(broker) for broker in partition.replicas if broker not in partition.isr]:
        notes.append(f"not in sync: {','.join(behind)}")
    if move is not None:
        changes = [f"+{broker}" for broker in move.adding] + [f"-{broker}" for broker in move.removing]
        notes.append(f"moving: {' '.join(changes)}")
    elif partition.leader >= 0 and partition.replicas and partition.leader != partition.replicas[0]:
        notes.append(f"preferred leader: {partition.replicas[0]}")
    return "; ".join(notes)


def member_names(members: Sequence[Member]) -> dict[str, str]:
    """Return a short name for each member id: its instance or client id, and the end of the member id if not unique;
    the member id if it has neither."""
    names = {member.member_id: member.instance_id or member.client_id or member.member_id for member in members}
    counts = Counter(names.values())
    return {
        member_id: name if counts[name] == 1 else f"{name}-{member_id[-MEMBER_ID_TAIL:]}"
        for member_id, name in names.items()
    }


def readers_of(group: DescribedGroup | None) -> dict[TopicPartition, str]:
    if group is None:
        return {}
    names = member_names(group.members)
    return {
        topic_partition: names[member.member_id] for member in group.members for topic_partition in member.assignment
    }


def idle_members(group: DescribedGroup | None) -> list[str]:
    if group is None:
        return []
    names = member_names(group.members)
    return sorted(names[member.member_id] for member in group.members if not member.assignment)


def as_data(overview: ClusterOverview) -> dict[str, Any]:
    """Return the overview for JSON and YAML."""
    data: dict[str, Any] = {
        "cluster_id": overview.cluster_id,
        "brokers": [row._asdict() for row in overview.brokers],
        "controller": None,
        "partitions": [
            {**row._asdict(), "replicas": list(row.replicas), "isr": list(row.isr), "note": row.note or None}
            for row in overview.partitions
        ],
        "under_replicated": overview.health.under_replicated,
        "leaderless": overview.health.leaderless,
    }
    if overview.quorum is not None:
        data["controller"] = {
            "leader": overview.quorum.leader_id,
            "epoch": overview.quorum.leader_epoch,
            "high_watermark": overview.quorum.high_watermark,
            "nodes": [row._asdict() for row in overview.controllers],
        }
    if overview.group is not None:
        data["group"] = {
            "name": overview.group.group_id,
            "state": overview.group.state,
            "coordinator": overview.group.coordinator.node_id,
            "members": len(overview.group.members),
            "idle": list(overview.idle),
        }
    return data
