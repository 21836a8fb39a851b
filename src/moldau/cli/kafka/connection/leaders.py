"""Requests that only a partition's leader answers: who leads what, and one connection to each leader.

For the tools that speak to brokers over bare connections. What is asked of a leader is the tool's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from moldau.cli.kafka.connection import clients
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from moldau.client.channel import Channel


@dataclass(frozen=True, slots=True)
class Partition:
    topic: str
    index: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class Cluster(NamedTuple):
    """Addresses of brokers, and the leader of every partition (-1: none)."""

    brokers: Mapping[int, tuple[str, int]]
    leaders: Mapping[Partition, int]
    internal_topics: frozenset[str]


def cluster(channel: Channel) -> Cluster:
    from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

    answer = channel.ask(ApiKey.METADATA, MetadataRequest(topics=None), MetadataResponse)
    return Cluster(
        brokers={broker.node_id: (broker.host, broker.port) for broker in answer.brokers},
        leaders={
            Partition(topic.name or "", partition.partition_index): partition.leader_id
            for topic in answer.topics
            for partition in topic.partitions
        },
        internal_topics=frozenset(topic.name or "" for topic in answer.topics if topic.is_internal),
    )


def by_leader(
    known: Cluster, partitions: Iterable[Partition], java_config: Mapping[str, str]
) -> Iterator[tuple[Channel, Mapping[str, list[int]]]]:
    """For each leader, a connection and the partitions to ask it about, by topic. Leaderless ones are left out."""
    wanted: dict[int, dict[str, list[int]]] = {}
    for partition in partitions:
        leader = known.leaders.get(partition, -1)
        if leader in known.brokers:
            wanted.setdefault(leader, {}).setdefault(partition.topic, []).append(partition.index)
    for leader, topics in wanted.items():
        with clients.channel_to(*known.brokers[leader], java_config) as channel:
            yield channel, topics
