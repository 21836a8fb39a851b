"""Requests that only a partition's leader answers: the leaders of all partitions, and one request to each.

For the tools that use bare connections to brokers; the tool decides what to request. If a leader has moved meanwhile,
the new one is asked, as Kafka's admin client does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.cli.kafka.connection import clients
from moldau.cli.kafka.connection.nodes import all_metadata
from moldau.cli.kafka.tool import ToolFailed
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from moldau.client.channel import Channel

A = TypeVar("A")
M = TypeVar("M", bound=Message)

MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE})
"""What the former leader answers, and a new one that does not know the high watermark yet."""
RETRY_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.1


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


def leaders_at(bootstrap_servers: str, java_config: Mapping[str, str]) -> Leaders:
    with clients.channel(bootstrap_servers, java_config) as channel:
        return find_leaders(channel)


def ask_leaders(
    metadata: Leaders,
    partitions: Iterable[TopicPartition],
    ask: Callable[[tuple[str, int], dict[str, list[int]]], Mapping[TopicPartition, A | KafkaError]],
    find: Callable[[], Leaders],
) -> dict[TopicPartition, A | KafkaError | ToolFailed]:
    """Call `ask` for each leader, with its address and its partitions by topic; return the answer or error of each
    partition that has a leader. For at most RETRY_SECONDS, look up leaders that moved and ask them."""
    deadline = time.monotonic() + RETRY_SECONDS
    answers = _ask_each(metadata, partitions, ask)
    while moved := [
        each for each, answer in answers.items() if isinstance(answer, KafkaError) and answer.code in MOVED
    ]:
        if time.monotonic() > deadline:
            break
        time.sleep(PAUSE_SECONDS)
        try:
            metadata = find()
        except (ToolFailed, OSError, MalformedData, KafkaError):
            break  # the answers of the former leaders are shown
        answers |= _ask_each(metadata, moved, ask)
    return answers


def _ask_each(
    metadata: Leaders,
    partitions: Iterable[TopicPartition],
    ask: Callable[[tuple[str, int], dict[str, list[int]]], Mapping[TopicPartition, A | KafkaError]],
) -> dict[TopicPartition, A | KafkaError | ToolFailed]:
    answers: dict[TopicPartition, A | KafkaError | ToolFailed] = {}
    for leader, topics in by_leader(metadata, partitions).items():
        try:
            answers |= ask(metadata.brokers[leader], topics)
        except ToolFailed as error:
            answers |= {TopicPartition(name, index): error for name in topics for index in topics[name]}
    return answers


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
