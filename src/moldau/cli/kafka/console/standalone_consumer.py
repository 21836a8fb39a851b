"""Reading topics without a group: every partition is assigned, nothing is committed, nobody is coordinated with.

Partitions and topics that appear later are found by asking for metadata now and then, and are read from their first
record, so that nothing written between two looks is missed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from moldau.cli.kafka.connection.clients import ADMIN_SECONDS, Refused
from moldau.cli.kafka.tool import ToolFailed

if TYPE_CHECKING:
    from moldau.client.confluent import Consumer, TopicPartition

LOOK_SECONDS: Final = 3.0
"""How often metadata is asked for. Kafka's consumer looks every five minutes, which nobody at a terminal waits for."""

FIRST_LOOKS_SECONDS: Final = 0.3
"""How often while there is nothing to read yet: a topic is created when it is first asked for."""
LATER_SECONDS: Final = 1.0


class StandaloneConsumer:
    """All partitions of one topic, or of all topics that match a pattern."""

    def __init__(self, consumer: Consumer, topic: str | re.Pattern[str], first_offset: int) -> None:
        self._consumer = consumer
        self._topic = topic
        self._first_offset = first_offset
        self._next_look = 0.0
        self._known: set[tuple[str, int]] = set()

    def look(self, now: float) -> None:
        """Assigns what is new, if it is time to look. `now` is a monotonic clock's."""
        from moldau.client.confluent import OFFSET_BEGINNING, TopicPartition

        if now < self._next_look:
            return
        offset = OFFSET_BEGINNING if self._next_look else self._first_offset
        fresh = [where for where in self._partitions() if where not in self._known]
        self._next_look = now + (LOOK_SECONDS if self._known or fresh else FIRST_LOOKS_SECONDS)
        if fresh:
            self._known.update(fresh)
            new: list[TopicPartition] = [TopicPartition(topic, index, offset) for topic, index in fresh]
            self._consumer.incremental_assign(new)

    def _partitions(self) -> list[tuple[str, int]]:
        from moldau.client.confluent import KafkaException

        one = self._topic if isinstance(self._topic, str) else None
        try:
            topics = self._consumer.list_topics(one, timeout=LATER_SECONDS if self._known else ADMIN_SECONDS).topics
        except KafkaException as error:
            if self._known:
                return []  # the broker is away; what is assigned is read on when it is back
            raise Refused(error.args[0]) from error
        return [
            (name, index)
            for name, topic in topics.items()
            if topic.error is None and (one is not None or self._wanted(name))
            for index in topic.partitions
        ]

    def _wanted(self, name: str) -> bool:
        assert isinstance(self._topic, re.Pattern)
        return self._topic.fullmatch(name) is not None and not name.startswith("__")


def first_offset(start: int | str) -> int:
    """librdkafka's number for `earliest` and `latest`; an offset is itself."""
    from moldau.client.confluent import OFFSET_BEGINNING, OFFSET_END

    if isinstance(start, int):
        return start
    return int(OFFSET_BEGINNING if start == "earliest" else OFFSET_END)


def whole_partition(consumer: Consumer, topic: str, index: int, offset: int) -> None:
    """Assigns one partition; says so when the topic exists and does not have it."""
    from moldau.client.confluent import KafkaException, TopicPartition

    try:
        found = consumer.list_topics(topic, timeout=ADMIN_SECONDS).topics[topic]
    except KafkaException as error:
        raise Refused(error.args[0]) from error
    if found.error is None and index not in found.partitions:
        raise ToolFailed(f"Topic {topic} has no partition {index}; it has {len(found.partitions)}, counted from 0")
    consumer.assign([TopicPartition(topic, index, offset)])
