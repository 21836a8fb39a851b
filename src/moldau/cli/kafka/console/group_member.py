"""Reading topics as a member of a group, as kafka-console-consumer and kafka-consumer-perf-test do with --group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.cli.kafka.topics import include_list
from moldau.cli.records.pattern_subscription import PatternSubscription

if TYPE_CHECKING:
    from moldau.client.confluent import Consumer


def subscribed(consumer: Consumer, topic: str | None, include: str | None) -> PatternSubscription | None:
    """Subscribes to the one topic, or gives what looks for the topics that match: all but Kafka's own."""
    if topic is not None:
        consumer.subscribe([topic])
        return None
    pattern = include_list(include)
    return PatternSubscription(consumer, lambda name: pattern.fullmatch(name) is not None and not name.startswith("__"))
