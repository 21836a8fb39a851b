"""The partitions of a subscription as of now, and the errors for missing topics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import RETRIABLE, Cluster, Topic
from moldau.spark.connections import connect
from moldau.spark.option_values import did_you_mean
from moldau.spark.options import ReadOptions, Subscription
from moldau.spark.pushed.shape import PREFIX
from moldau.spark.pushed.view_cluster import ViewCluster

CHECK_SECONDS: Final = 2.0
"""Timeout of the first check; reading waits longer."""


def check_topics_exist(options: ReadOptions) -> None:
    """Raise KafkaError if the cluster responds and lacks a subscribed topic, or refuses a view of it. Other errors are
    left to the read."""
    if options.subscription.pattern is not None and options.shape is None:
        return
    cluster = connect(options, CHECK_SECONDS)
    try:
        if isinstance(cluster, ViewCluster):
            _check_views(cluster, options.subscription)
        else:
            subscribed_partitions(cluster, options.subscription)
    except KafkaError as error:
        is_views = options.shape is not None and error.code not in RETRIABLE
        if is_views or error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    except (OSError, MalformedData):
        return  # the read retries, and waits for the cluster
    finally:
        cluster.close()


def _check_views(cluster: ViewCluster, subscription: Subscription) -> None:
    names = _names(cluster, subscription)
    for name in cluster.check(names) if names else ():
        raise _with_hint(cluster, name, f"There is no topic {name} at {cluster.bootstrap}")


def subscribed_partitions(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """Return the subscribed partitions. A missing topic or partition is an error. Patterns exclude internal
    topics, and views that reads made."""
    names = _names(cluster, subscription)
    if subscription.pattern is None or isinstance(cluster, ViewCluster):
        cluster.refresh(names)
    existing = {TopicPartition(name, index) for name in names for index in _topic(cluster, name).leaders}
    if not subscription.partitions:
        return sorted(existing)
    missing = set(subscription.partitions) - existing
    if missing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {min(missing)}")
    return list(subscription.partitions)


def _names(cluster: Cluster, subscription: Subscription) -> Sequence[str]:
    if subscription.pattern is None:
        return subscription.topics or tuple({partition.topic for partition in subscription.partitions})
    matches = re.compile(subscription.pattern).fullmatch
    return sorted(
        name
        for name, topic in cluster.topics().items()
        if matches(name) and not topic.is_internal and not name.startswith(PREFIX)
    )


def _topic(cluster: Cluster, name: str) -> Topic:
    try:
        return cluster.topic(name)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise _with_hint(cluster, name, str(error)) from None


def _with_hint(cluster: Cluster, name: str, missing: str) -> KafkaError:
    others = [topic.name for topic in cluster.topics().values() if not topic.is_internal]
    hint = did_you_mean(name, others, {}) or f"; `moldau topic create {name}` makes it"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{missing}{hint}")
