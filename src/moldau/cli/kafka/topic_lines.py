"""How kafka-topics --describe draws a topic: one line for the topic, one for each partition, TAB between the cells.

    Topic: t<TAB>TopicId: <22 chars><TAB>PartitionCount: 1<TAB>ReplicationFactor: 1<TAB>Configs: k=v,k=v
    <TAB>Topic: t<TAB>Partition: 0<TAB>Leader: 1<TAB>Replicas: 1,2<TAB>Isr: 1,2<TAB>Elr: <TAB>LastKnownElr:

A partition under reassignment has `Adding Replicas` and `Removing Replicas` before `Elr`. Nothing is changed here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID
from moldau.cli.flags import Arguments
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.tool import ToolFailed
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from moldau.client.channel import Channel
    from moldau.wire.messages.describe_configs import DescribeConfigsResourceResult
    from moldau.wire.messages.list_partition_reassignments import OngoingPartitionReassignment

    Config = Sequence[DescribeConfigsResourceResult]

UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class PartitionLine:
    index: int
    leader: int
    """-1: none."""
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    reassignment: OngoingPartitionReassignment | None

    def replication_factor(self) -> int:
        """While replicas move, the factor is what it was before the new ones were added."""
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


TOPIC_RESOURCE: Final = 2
DEFAULT_CONFIG: Final = 5
"""Kafka's ConfigSource for a value nobody set."""

FILTERS: Final[Mapping[str, Callable[[PartitionLine, int, set[int]], bool]]] = {
    "under-replicated-partitions": lambda line, _min_isr, _live: line.replication_factor() > len(line.isr),
    "unavailable-partitions": lambda line, _min_isr, live: line.leader not in live,
    "under-min-isr-partitions": lambda line, min_isr, _live: line.leader < 0 or len(line.isr) < min_isr,
    "at-min-isr-partitions": lambda line, min_isr, _live: len(line.isr) == min_isr,
}


def _ids(nodes: Iterable[int] | None) -> str:
    return "N/A" if nodes is None else ",".join(map(str, nodes))


def describe(arguments: Arguments, asked: list[str] | str) -> None:
    """Prints the topics of these names, or the one of this id."""
    java_config = properties.load(arguments.text("command-config"))
    limit = arguments.integer("partition-size-limit-per-response") or 2000
    with clients.channel(arguments.text("bootstrap-server") or "", java_config) as channel:
        names = asked if isinstance(asked, list) else _named(channel, asked, arguments.has("if-exists"))
        if not names:
            return
        topics, live_brokers = _topics(channel, names, limit)
        configs = _configs(channel, [topic.name for topic in topics])
    for topic in topics:
        _print(arguments, topic, configs[topic.name], live_brokers)


def _named(channel: Channel, text: str, absent_is_fine: bool) -> list[str]:
    from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

    wanted = parse_uuid(text)
    everything = channel.ask(ApiKey.METADATA, MetadataRequest(topics=None), MetadataResponse)
    names = [topic.name for topic in everything.topics if topic.topic_id == wanted and topic.name]
    if not names and not absent_is_fine:
        raise ToolFailed(f"TopicId '{text}' does not exist as expected")
    return names


def parse_uuid(text: str) -> bytes:
    """Kafka writes a UUID as 22 characters of URL-safe base64."""
    try:
        decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
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
    """Topics by name and the brokers alive; eligible leaders where the broker tells them (KIP-966)."""
    from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    metadata = channel.ask(ApiKey.METADATA, request, MetadataResponse)
    eligible = _eligible_leaders(channel, names, limit)
    moving = _reassignments(channel, {topic.name or "": len(topic.partitions) for topic in metadata.topics})
    drawn = []
    for topic in sorted(metadata.topics, key=lambda topic: topic.name or ""):
        name = topic.name or ""
        if topic.error_code:
            raise ToolFailed(f"{name}: {ErrorCode(topic.error_code).name}")
        lines = [
            PartitionLine(
                index=partition.partition_index,
                leader=partition.leader_id,
                replicas=partition.replica_nodes,
                isr=partition.isr_nodes,
                elr=eligible.get((name, partition.partition_index), (None, None))[0],
                last_known_elr=eligible.get((name, partition.partition_index), (None, None))[1],
                reassignment=moving.get((name, partition.partition_index)),
            )
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ]
        drawn.append(TopicLines(name, topic.topic_id, lines))
    return drawn, {broker.node_id for broker in metadata.brokers}


Eligible = tuple[Sequence[int] | None, Sequence[int] | None]


def _eligible_leaders(channel: Channel, names: Sequence[str], limit: int) -> Mapping[tuple[str, int], Eligible]:
    """Page by page; a broker without the API leaves the columns at N/A."""
    from moldau.wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        RequestCursor,
        TopicRequest,
    )

    found: dict[tuple[str, int], Eligible] = {}
    if not channel.offers(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        return found
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in sorted(names)], response_partition_limit=limit
    )
    while True:
        page = channel.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, DescribeTopicPartitionsResponse)
        for topic in page.topics:
            for partition in topic.partitions:
                # Kafka's client reads "none known" (null) as an empty list, and so draws an empty cell.
                elr, last_known = partition.eligible_leader_replicas or (), partition.last_known_elr or ()
                found[topic.name or "", partition.partition_index] = elr, last_known
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor
        request.topics = [asked for asked in request.topics if asked.name >= cursor.topic_name]
        request.cursor = RequestCursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)


def _reassignments(
    channel: Channel, partition_counts: Mapping[str, int]
) -> Mapping[tuple[str, int], OngoingPartitionReassignment]:
    from moldau.wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        ListPartitionReassignmentsTopics,
    )

    if not channel.offers(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        return {}
    asked = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=list(range(count)))
        for name, count in partition_counts.items()
    ]
    request = ListPartitionReassignmentsRequest(topics=asked)
    answer = channel.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, ListPartitionReassignmentsResponse)
    return {
        (topic.name, partition.partition_index): partition for topic in answer.topics for partition in topic.partitions
    }


def _configs(channel: Channel, names: Sequence[str]) -> dict[str, Config]:
    from moldau.wire.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    asked = [DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name) for name in names]
    request = DescribeConfigsRequest(resources=asked)
    answer = channel.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
    for result in answer.results:
        clients.raise_for_error(result.error_code, result.error_message)
    return {result.resource_name: result.configs for result in answer.results}


def _print(arguments: Arguments, topic: TopicLines, config: Config, live_brokers: set[int]) -> None:
    own = [entry for entry in config if entry.config_source != DEFAULT_CONFIG]
    filters = [name for name in FILTERS if arguments.has(name)]
    if not filters and (own or not arguments.has("topics-with-overrides")):
        topic_id = f"\tTopicId: {format_uuid(topic.topic_id)}" if topic.topic_id != ZERO_UUID else ""
        settings = ",".join(f"{entry.name}={entry.value}" for entry in own)
        factor = topic.partitions[0].replication_factor() if topic.partitions else 0
        print(
            f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {factor}\tConfigs: {settings}"
        )
    if arguments.has("topics-with-overrides"):
        return
    min_isr = next((int(entry.value or 1) for entry in config if entry.name == "min.insync.replicas"), 1)
    for partition in topic.partitions:
        if not filters or any(FILTERS[name](partition, min_isr, live_brokers) for name in filters):
            print(partition.draw(topic.name))
