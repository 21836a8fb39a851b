"""Which partitions a subscription stands for now."""

from __future__ import annotations

import re
from collections.abc import Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.spark.options import Subscription


def subscribed_partitions(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """A named topic or partition that is missing is an error. Patterns leave internal topics out."""
    names = _names(cluster, subscription)
    found = {TopicPartition(name, index) for name in names for index in cluster.topic(name).leaders}
    if not subscription.partitions:
        return sorted(found)
    missing = set(subscription.partitions) - found
    if missing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {min(missing)}")
    return list(subscription.partitions)


def _names(cluster: Cluster, subscription: Subscription) -> Sequence[str]:
    if subscription.pattern is None:
        names = subscription.topics or tuple({where.topic for where in subscription.partitions})
        cluster.refresh(names)
        return names
    matches = re.compile(subscription.pattern).fullmatch
    return sorted(name for name, topic in cluster.topics().items() if matches(name) and not topic.is_internal)
