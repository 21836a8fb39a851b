"""Subscribing as a member of a group, for kafka-console-consumer and kafka-consumer-perf-test with --group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.cli.kafka.topics import include_list
from moldau.cli.records.pattern_subscription import PatternSubscription

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.confluent import Consumer


def subscribe(
    consumer: Consumer, cluster: Cluster, topic: str | None, include: str | None
) -> PatternSubscription | None:
    """Subscribe to `topic` and return None: librdkafka finds new partitions by itself. Without a topic, return the
    subscription to all topics that match `include` and are not internal; it subscribes when it is refreshed.
    """
    if topic is not None:
        consumer.subscribe([topic])
        return None
    pattern = include_list(include)
    return PatternSubscription(
        consumer, cluster, lambda name: pattern.fullmatch(name) is not None and not name.startswith("__")
    )
