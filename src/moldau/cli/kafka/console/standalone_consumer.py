"""Reads topics without a group: every partition is assigned, nothing is committed.

New partitions and topics are found by refreshing the metadata, and are read from their first record, so that nothing
written between two refreshes is missed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from moldau.cli.kafka.connection.clients import ADMIN_SECONDS, ClientError, refused_rights
from moldau.cli.kafka.tool import ToolFailed

if TYPE_CHECKING:
    from moldau.client.confluent import Consumer, KafkaError, TopicPartition

REFRESH_SECONDS: Final = 3.0
"""How often metadata is refreshed. Kafka's consumer does it every five minutes, too rarely at a terminal."""

UNASSIGNED_REFRESH_SECONDS: Final = 0.3
"""How often while no partition is assigned yet: the first metadata request creates the topic, and the next finds it."""
TIMEOUT_WHILE_READING_SECONDS: Final = 1.0
"""The timeout of a refresh while partitions are being read: it blocks the reading."""


class StandaloneConsumer:
    """Assigns to a consumer all partitions of a topic, or of all topics that match a pattern, except internal ones."""

    def __init__(self, consumer: Consumer, topic: str | re.Pattern[str], first_offset: int) -> None:
        self._consumer = consumer
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
        from moldau.client.confluent import KafkaException

        topic_name = self._topic if isinstance(self._topic, str) else None
        try:
            topics = self._consumer.list_topics(
                topic_name, timeout=TIMEOUT_WHILE_READING_SECONDS if self._assigned else ADMIN_SECONDS
            ).topics
        except KafkaException as error:
            if self._assigned:
                return []  # Usually no broker answers now; librdkafka reads on when one does.
            raise ClientError(error.args[0]) from error
        if topic_name is not None:
            _raise_refusal(topics[topic_name].error, topic_name)
        return [
            (name, index)
            for name, topic in topics.items()
            if topic.error is None and (topic_name is not None or self._matches(name))
            for index in topic.partitions
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


def assign_partition(consumer: Consumer, topic: str, index: int, offset: int) -> None:
    """Assign one partition; fail if the topic exists but has no such partition."""
    from moldau.client.confluent import KafkaException, TopicPartition

    try:
        metadata = consumer.list_topics(topic, timeout=ADMIN_SECONDS).topics[topic]
    except KafkaException as error:
        raise ClientError(error.args[0]) from error
    _raise_refusal(metadata.error, topic)
    if metadata.error is None and index not in metadata.partitions:
        raise ToolFailed(f"Topic {topic} has no partition {index}; it has {len(metadata.partitions)}, counted from 0")
    consumer.assign([TopicPartition(topic, index, offset)])


def _raise_refusal(error: KafkaError | None, topic: str) -> None:
    """Fail if the client may not read the topic: waiting would not help."""
    if error is not None and (refused := refused_rights(error, topic, None)) is not None:
        raise refused
