"""Reads topics without a group: every partition is assigned, nothing is committed.

New partitions and topics are found by refreshing the metadata, and are read from their first record, so that nothing
written between two refreshes is missed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.cli.kafka.connection.clients import ADMIN_SECONDS, refused_rights
from moldau.cli.kafka.tool import ToolFailed

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.confluent import Consumer, TopicPartition
    from moldau.wire.messages.metadata import MetadataResponseTopic

REFRESH_SECONDS: Final = 3.0
"""How often metadata is refreshed. Kafka's consumer does it every five minutes, too rarely at a terminal."""

UNASSIGNED_REFRESH_SECONDS: Final = 0.3
"""How often while no partition is assigned yet: the first metadata request creates the topic, and the next finds it."""

TIMEOUT_WHILE_READING_SECONDS: Final = 1.0
"""The timeout of a refresh while partitions are being read: it blocks the reading."""


class StandaloneConsumer:
    """Assigns to a consumer all partitions of a topic, or of all topics that match a pattern, except internal ones."""

    def __init__(self, consumer: Consumer, cluster: Cluster, topic: str | re.Pattern[str], first_offset: int) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._topic = topic
        self._first_offset = first_offset
        self._next_refresh = 0.0
        self._assigned: set[tuple[str, int]] = set()

    def refresh(self, now: float) -> None:
        """Assign new partitions, if a refresh is due. `now` is the time of a monotonic clock."""
        from moldau.client.confluent import OFFSET_BEGINNING, TopicPartition

        if now < self._next_refresh:
            return
        # Only the partitions of the first refresh start where the user wants; later ones
        # are taken as new and are read from their beginning.
        offset = OFFSET_BEGINNING if self._next_refresh else self._first_offset
        new_partitions = [partition for partition in self._partitions() if partition not in self._assigned]
        self._next_refresh = now + (REFRESH_SECONDS if self._assigned or new_partitions else UNASSIGNED_REFRESH_SECONDS)
        if new_partitions:
            self._assigned.update(new_partitions)
            starts: list[TopicPartition] = [TopicPartition(topic, index, offset) for topic, index in new_partitions]
            self._consumer.incremental_assign(starts)

    def _partitions(self) -> list[tuple[str, int]]:
        topic_name = self._topic if isinstance(self._topic, str) else None
        if not self._assigned:
            return self._wanted(_listed_patiently(self._cluster, topic_name), topic_name)
        try:
            topics = _listed(self._cluster, topic_name, TIMEOUT_WHILE_READING_SECONDS)
        except (KafkaError, OSError, MalformedData):
            self._cluster.close()
            return []  # Usually no broker answers now; librdkafka reads on when one does.
        return self._wanted(topics, topic_name)

    def _wanted(self, topics: Mapping[str, MetadataResponseTopic], topic_name: str | None) -> list[tuple[str, int]]:
        return [
            (name, each.partition_index)
            for name, topic in topics.items()
            if not topic.error_code and (topic_name is not None or self._matches(name))
            for each in topic.partitions
        ]

    def _matches(self, name: str) -> bool:
        assert isinstance(self._topic, re.Pattern)
        return self._topic.fullmatch(name) is not None and not name.startswith("__")


def first_offset(start: int | str) -> int:
    """Return librdkafka's number for `earliest` and `latest`, or the offset itself."""
    from moldau.client.confluent import OFFSET_BEGINNING, OFFSET_END

    if isinstance(start, int):
        return start
    return int(OFFSET_BEGINNING if start == "earliest" else OFFSET_END)


def assign_partition(consumer: Consumer, cluster: Cluster, topic: str, index: int, offset: int) -> None:
    """Assign one partition; fail if the topic exists but has no such partition."""
    from moldau.client.confluent import TopicPartition

    metadata = _listed_patiently(cluster, topic)[topic]
    indexes = {each.partition_index for each in metadata.partitions}
    if not metadata.error_code and index not in indexes:
        raise ToolFailed(f"Topic {topic} has no partition {index}; it has {len(indexes)}, counted from 0")
    consumer.assign([TopicPartition(topic, index, offset)])


def _listed_patiently(cluster: Cluster, topic: str | None) -> dict[str, MetadataResponseTopic]:
    """Return the same as `_listed`; a broker that restarts may come back within ADMIN_SECONDS."""
    return cluster.retry(lambda: _listed(cluster, topic, ADMIN_SECONDS), ADMIN_SECONDS * 1000)


def _listed(cluster: Cluster, topic: str | None, seconds: float) -> dict[str, MetadataResponseTopic]:
    """Return this topic, which the broker may create, or all. Fail if the client may not read it: waiting would not
    help."""
    from moldau.client.requests.metadata import metadata

    response = metadata(cluster.asking_within(seconds), None if topic is None else [topic], create=topic is not None)
    topics = {each.name or "": each for each in response.topics}
    if topic is not None:
        refused = refused_rights(ErrorCode(topics[topic].error_code).name, topic, None)
        if refused is not None:
            raise refused
    return topics
