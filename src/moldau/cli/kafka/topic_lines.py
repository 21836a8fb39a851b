"""The output of kafka-topics --describe: one line for the topic, one for each partition, TAB between the cells.

    Topic: t<TAB>TopicId: <22 chars><TAB>PartitionCount: 1<TAB>ReplicationFactor: 1<TAB>Configs: k=v,k=v
    <TAB>Topic: t<TAB>Partition: 0<TAB>Leader: 1<TAB>Replicas: 1,2<TAB>Isr: 1,2<TAB>Elr: <TAB>LastKnownElr:

A partition under reassignment has `Adding Replicas` and `Removing Replicas` before `Elr`. This module only
reads from the cluster.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID, TopicPartition
from moldau.base.settings.topics import MIN_INSYNC_REPLICAS
from moldau.cli.flags import Arguments
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.connection.nodes import all_metadata
from moldau.cli.kafka.tool import ToolFailed
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from moldau.client.channel import Channel
    from moldau.wire.messages.describe_configs import DescribeConfigsResourceResult
    from moldau.wire.messages.list_partition_reassignments import OngoingPartitionReassignment
    from moldau.wire.messages.metadata import MetadataResponseTopic

    ConfigEntries = Sequence[DescribeConfigsResourceResult]

UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class PartitionLine:
    index: int
    leader: int
    """The id of the leader, or -1 if the partition has none."""
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    reassignment: OngoingPartitionReassignment | None

    def replication_factor(self) -> int:
        """Return the replication factor; during a reassignment, the one before replicas were added."""
        moving = self.reassignment
        if moving is None or not set(self.replicas) & {*moving.adding_replicas, *moving.removing_replicas}:
            return len(self.replicas)
        return len(moving.replicas) - len(moving.adding_replicas)

    def draw(self, topic: str) -> str:
        cells = [
            f"\tTopic: {topic}",
            f"Partition: {self.index}",
            f"Leader: {'none' if self.leader < 0 else self.leader}",
            f"Replicas: {_ids(self.replicas)}",
            f"Isr: {_ids(self.isr)}",
        ]
        if self.reassignment is not None:
            cells.append(f"Adding Replicas: {_ids(self.reassignment.adding_replicas)}")
            cells.append(f"Removing Replicas: {_ids(self.reassignment.removing_replicas)}")
        cells += [f"Elr: {_ids(self.elr)}", f"LastKnownElr: {_ids(self.last_known_elr)}"]
        return "\t".join(cells)


@dataclass(frozen=True, slots=True)
class TopicLines:
    name: str
    topic_id: bytes
    partitions: Sequence[PartitionLine]


REASSIGNMENTS_TIMEOUT_MS: Final = 60_000
DEFAULT_CONFIG: Final = 5
"""Kafka's ConfigSource of a value that nobody set."""

FILTERS: Final[Mapping[str, Callable[[PartitionLine, int, set[int]], bool]]] = {
    "under-replicated-partitions": lambda line, _min_isr, _live: line.replication_factor() > len(line.isr),
    "unavailable-partitions": lambda line, _min_isr, live: line.leader not in live,
    "under-min-isr-partitions": lambda line, min_isr, _live: line.leader < 0 or len(line.isr) < min_isr,
    "at-min-isr-partitions": lambda line, min_isr, _live: len(line.isr) == min_isr,
}


def _ids(nodes: Iterable[int] | None) -> str:
    return "N/A" if nodes is None else ",".join(map(str, nodes))


def describe(arguments: Arguments, names_or_id: list[str] | str) -> None:
    """Print the topics with these names, or the topic with this id."""
    java_config = properties.load(arguments.single_value("command-config"))
    limit = arguments.integer("partition-size-limit-per-response") or 2000
    with clients.channel(arguments.single_value("bootstrap-server") or "", java_config) as channel:
        names = (
            names_or_id
            if isinstance(names_or_id, list)
            else _names_by_id(channel, names_or_id, arguments.has("if-exists"))
        )
        if not names:
            return
        topics, live_brokers = _topics(channel, names, limit)
        configs = _configs(channel, [topic.name for topic in topics])
    for topic in topics:
        _print(arguments, topic, configs[topic.name], live_brokers)


def _names_by_id(channel: Channel, text: str, may_be_absent: bool) -> list[str]:
    topic_id = parse_uuid(text)
    names = [topic.name for topic in all_metadata(channel).topics if topic.topic_id == topic_id and topic.name]
    if not names and not may_be_absent:
        raise ToolFailed(f"TopicId '{text}' does not exist as expected")
    return names


def parse_uuid(text: str) -> bytes:
    """Parse Kafka's form of a UUID: 22 characters of URL-safe base64."""
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ToolFailed(f"Input string `{text}` is not a base64-encoded UUID") from None
    if len(decoded) != UUID_BYTES:
        raise ToolFailed(
            f"Input string `{text}` decoded as {len(decoded)} bytes,"
            " which is not equal to the expected 16 bytes of a base64-encoded UUID"
        )
    return decoded


def format_uuid(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _topics(channel: Channel, names: Sequence[str], limit: int) -> tuple[list[TopicLines], set[int]]:
    """Return the topics and the live brokers. Partitions have their eligible leader replicas (KIP-966) if the broker
    has that API."""
    from moldau.client.requests.metadata import metadata

    response = metadata(channel.ask, names)
    elrs = _elrs(channel, names, limit)
    moving = _reassignments(channel, response.topics)
    described = []
    for topic in sorted(response.topics, key=lambda topic: topic.name or ""):
        name = topic.name or ""
        if topic.error_code:
            raise ToolFailed(f"{name}: {ErrorCode(topic.error_code).name}")
        lines = [
            PartitionLine(
                index=partition.partition_index,
                leader=partition.leader_id,
                replicas=partition.replica_nodes,
                isr=partition.isr_nodes,
                elr=elrs.get((name, partition.partition_index), UNKNOWN_ELR).eligible,
                last_known_elr=elrs.get((name, partition.partition_index), UNKNOWN_ELR).last_known,
                reassignment=moving.get(TopicPartition(name, partition.partition_index)),
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ]
        described.append(TopicLines(name, topic.topic_id, lines))
    return described, {broker.node_id for broker in response.brokers}


class Elr(NamedTuple):
    """The eligible leader replicas of a partition; None if the broker does not tell."""

    eligible: Sequence[int] | None = None
    last_known: Sequence[int] | None = None


UNKNOWN_ELR: Final = Elr()


def _elrs(channel: Channel, names: Sequence[str], limit: int) -> Mapping[tuple[str, int], Elr]:
    """Return the eligible leader replicas, page by page; without the API the columns show N/A."""
    from moldau.client.requests.metadata import topic_partitions

    if not channel.offers(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        return {}
    # Kafka's client reads null as an empty list, and so prints an empty cell.
    return {
        (topic.name or "", partition.partition_index): Elr(
            partition.eligible_leader_replicas or (), partition.last_known_elr or ()
        )
        for topic in topic_partitions(channel.ask, names, limit)
        for partition in topic.partitions
    }


def _reassignments(
    channel: Channel, topics: Iterable[MetadataResponseTopic]
) -> Mapping[TopicPartition, OngoingPartitionReassignment]:
    from moldau.client.requests.controller import list_reassignments

    if not channel.offers(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        return {}
    partitions = (TopicPartition(topic.name or "", index) for topic in topics for index in range(len(topic.partitions)))
    return list_reassignments(channel.ask, REASSIGNMENTS_TIMEOUT_MS, partitions)


def _configs(channel: Channel, names: Sequence[str]) -> dict[str, ConfigEntries]:
    from moldau.client.requests.configs import TOPIC, describe_configs

    results = describe_configs(channel.ask, TOPIC, names)
    for result in results:
        clients.raise_for_error(result.error_code, result.error_message)
    return {result.resource_name: result.configs for result in results}


def _print(arguments: Arguments, topic: TopicLines, config: ConfigEntries, live_brokers: set[int]) -> None:
    overrides = sorted(
        (entry for entry in config if entry.config_source != DEFAULT_CONFIG), key=lambda entry: entry.name
    )
    filters = [name for name in FILTERS if arguments.has(name)]
    if not filters and (overrides or not arguments.has("topics-with-overrides")):
        topic_id = f"\tTopicId: {format_uuid(topic.topic_id)}" if topic.topic_id != ZERO_UUID else ""
        settings = ",".join(f"{entry.name}={entry.value}" for entry in overrides)
        factor = topic.partitions[0].replication_factor() if topic.partitions else 0
        print(
            f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {factor}\tConfigs: {settings}"
        )
    if arguments.has("topics-with-overrides"):
        return
    min_isr = next((int(entry.value or 1) for entry in config if entry.name == MIN_INSYNC_REPLICAS.name), 1)
    for partition in topic.partitions:
        if not filters or any(FILTERS[name](partition, min_isr, live_brokers) for name in filters):
            print(partition.draw(topic.name))
