"""Requests that only a partition's leader answers: the leaders of all partitions, and one connection to each.

For the tools that use bare connections to brokers; the tool decides what to request. Nothing is retried: a leader that
moves meanwhile answers NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.cli.kafka.connection import clients
from moldau.cli.kafka.connection.nodes import all_metadata

if TYPE_CHECKING:
    from moldau.client.channel import Channel


class Leaders(NamedTuple):
    """Addresses of brokers, and the leader of every partition, which is -1 if the partition has no leader."""

    brokers: Mapping[int, tuple[str, int]]
    leaders: Mapping[TopicPartition, int]
    internal_topics: frozenset[str]


def find_leaders(channel: Channel) -> Leaders:
    response = all_metadata(channel)
    return Leaders(
        brokers={broker.node_id: (broker.host, broker.port) for broker in response.brokers},
        leaders={
            TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
            for topic in response.topics
            for partition in topic.partitions
        },
        internal_topics=frozenset(topic.name or "" for topic in response.topics if topic.is_internal),
    )


def by_leader(
    metadata: Leaders, partitions: Iterable[TopicPartition], java_config: Mapping[str, str]
) -> Iterator[tuple[Channel, Mapping[str, list[int]]]]:
    """Yield for each leader a connection and its partitions by topic. Partitions without a leader are left out."""
    partitions_of: dict[int, dict[str, list[int]]] = {}
    for partition in partitions:
        leader = metadata.leaders.get(partition, -1)
        if leader in metadata.brokers:
            partitions_of.setdefault(leader, {}).setdefault(partition.topic, []).append(partition.partition)
    for leader, topics in partitions_of.items():
        with clients.channel_to(*metadata.brokers[leader], java_config) as channel:
            yield channel, topics
