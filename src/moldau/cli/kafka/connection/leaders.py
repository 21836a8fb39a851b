"""Requests that only a partition's leader answers: the leaders of all partitions, and one request to each.

For the tools that use bare connections to brokers; the tool decides what to request. Nothing is retried: a leader that
moves meanwhile answers NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.cli.kafka.connection import clients
from moldau.cli.kafka.connection.nodes import all_metadata
from moldau.cli.kafka.tool import ToolFailed
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from moldau.client.channel import Channel

M = TypeVar("M", bound=Message)


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


def by_leader(metadata: Leaders, partitions: Iterable[TopicPartition]) -> dict[int, dict[str, list[int]]]:
    """Return the partitions of each leader, by topic. Partitions without a leader are left out."""
    partitions_of: dict[int, dict[str, list[int]]] = {}
    for partition in partitions:
        leader = metadata.leaders.get(partition, -1)
        if leader in metadata.brokers:
            partitions_of.setdefault(leader, {}).setdefault(partition.topic, []).append(partition.partition)
    return partitions_of


def ask_broker(
    address: tuple[str, int], java_config: Mapping[str, str], key: ApiKey, request: Message, response_type: type[M]
) -> M:
    """Send one request on a connection of its own. Raise ToolFailed if the broker does not answer it: other brokers may
    have answered, and what they did is to be shown."""
    host, port = address
    try:
        with clients.channel_to(host, port, java_config) as channel:
            return channel.ask(key, request, response_type)
    except (OSError, MalformedData, KafkaError) as error:
        raise ToolFailed(f"{host}:{port}: {error}") from error
