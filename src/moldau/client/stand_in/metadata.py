"""Brokers and topics in the form of confluent_kafka's `list_topics`."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.client.cluster import Cluster
from moldau.client.stand_in.values import KafkaError, broker_error
from moldau.wire.apis import ApiKey
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]
    error: KafkaError | None


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic: str
    partitions: dict[int, PartitionMetadata]
    error: KafkaError | None


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]


def list_topics(cluster: Cluster, topic: str | None = None, create: bool = False) -> ClusterMetadata:
    requested = None if topic is None else [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=requested, allow_auto_topic_creation=create)
    response = cluster.ask_any(ApiKey.METADATA, request, MetadataResponse)
    return ClusterMetadata(
        response.cluster_id or "",
        response.controller_id,
        {each.node_id: BrokerMetadata(each.node_id, each.host, each.port) for each in response.brokers},
        {each.name or "": _topic(each) for each in response.topics},
    )


def _topic(topic: MetadataResponseTopic) -> TopicMetadata:
    partitions = {
        each.partition_index: PartitionMetadata(
            each.partition_index,
            each.leader_id,
            list(each.replica_nodes),
            list(each.isr_nodes),
            _error(each.error_code),
        )
        for each in topic.partitions
    }
    return TopicMetadata(topic.name or "", partitions, _error(topic.error_code))


def _error(code: int) -> KafkaError | None:
    return broker_error(code) if code else None
