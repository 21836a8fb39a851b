"""The result of confluent_kafka's list_topics(), as far as commands use it."""

from __future__ import annotations

from typing import Protocol


class PartitionMetadata(Protocol):
    leader: int
    """The id of the leader, or -1 while the partition has none."""
    replicas: list[int]
    isrs: list[int]


class TopicMetadata(Protocol):
    topic: str
    partitions: dict[int, PartitionMetadata]


class BrokerMetadata(Protocol):
    id: int
    host: str
    port: int


class ClusterMetadata(Protocol):
    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]
