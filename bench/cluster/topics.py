"""Topics with three replicas: created one at a time or by the thousand, until all replicas are in sync."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.brokers.connection import BrokerRefused
from bench.brokers.topics import TIMEOUT_S, delete_topic
from bench.cluster.servers import Cluster, await_true
from bench.cluster.wire import NOBODY, ClusterView, PartitionView, ask_any, view

REPLICAS = 3
IN_SYNC_MIN = 2
CONFIG = {"min.insync.replicas": str(IN_SYNC_MIN)}
TOPICS_A_REQUEST = 1_000
"""Kafka refuses a request that makes more than 10,000 records of metadata."""
SETTLE_TIMEOUT_S = 600.0
METADATA_PATIENCE_S = 30.0
"""How long a running node may take to return the metadata of many thousands of partitions."""


def admin_of(bootstrap: str) -> AdminClient:
    """Return a connected client, so that the first request does not include the connect time."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "topic.metadata.refresh.sparse": True})
    admin.list_topics("__no_such_topic", timeout=TIMEOUT_S)
    return admin


def create(admin: AdminClient, names: Sequence[str], partitions: int) -> float:
    """Create all in requests of a thousand; return the seconds until the cluster agreed to the last."""
    began = time.perf_counter()
    for first in range(0, len(names), TOPICS_A_REQUEST):
        new = [NewTopic(name, partitions, REPLICAS, config=CONFIG) for name in names[first : first + TOPICS_A_REQUEST]]
        for created in admin.create_topics(new, request_timeout=TIMEOUT_S).values():
            _agreed(created)
    return time.perf_counter() - began


def _agreed(created: Future[None]) -> None:
    try:
        created.result(TIMEOUT_S)
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # the client asked twice, after a lost answer
            raise


def led_by(cluster: Cluster, leader: int) -> str:
    """Create a topic of one partition with that leader; return when all replicas are in sync."""
    name = new_name()
    replicas = [leader, *(node for node in cluster.addresses if node != leader)]
    admin = admin_of(cluster.bootstrap)
    new = NewTopic(name, 1, replica_assignment=[replicas], config=CONFIG)
    admin.create_topics([new], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    await_in_sync(cluster, [name], 1)
    return name


def scratch(cluster_bootstrap: str, addresses: Sequence[str], partitions: int, cleanup: ExitStack) -> str:
    """Create a topic for a workload; `cleanup` deletes it."""
    name = new_name()
    create(admin_of(cluster_bootstrap), [name], partitions)
    cleanup.callback(delete_topic, cluster_bootstrap, name)
    await_true(lambda: _all_in_sync(addresses, [name], partitions), f"{name} is in sync")
    return name


def await_in_sync(cluster: Cluster, names: Sequence[str], partitions: int) -> None:
    addresses = list(cluster.addresses.values())
    await_true(
        lambda: _all_in_sync(addresses, names, partitions),
        f"{cluster.name}: {len(names)} topics have all replicas in sync",
        SETTLE_TIMEOUT_S,
    )


def leader_address(addresses: Sequence[str], name: str, partition: int) -> str:
    cluster_view = ask_any(addresses, lambda each: view(each, [name]))
    leader = NOBODY if cluster_view is None else cluster_view.topics[name][partition].leader
    if cluster_view is None or leader not in cluster_view.brokers:
        raise BrokerRefused(f"{name}-{partition} has no leader")
    return cluster_view.brokers[leader]


def new_name() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"


def _all_in_sync(addresses: Sequence[str], names: Sequence[str], partitions: int) -> bool:
    """Whether every node sees them in sync: a node must know a partition before it can serve it."""
    requested = names if len(names) <= TOPICS_A_REQUEST else None
    views = [ask_any([address], lambda each: view(each, requested, METADATA_PATIENCE_S)) for address in addresses]
    return all(cluster_view is not None and _is_in_sync(cluster_view, names, partitions) for cluster_view in views)


def _is_in_sync(cluster_view: ClusterView, names: Sequence[str], partitions: int) -> bool:
    return all(
        len(parts := cluster_view.topics.get(name, {})) == partitions and all(map(_is_whole, parts.values()))
        for name in names
    )


def _is_whole(partition: PartitionView) -> bool:
    return partition.leader >= 0 and len(partition.in_sync) == len(partition.replicas)
