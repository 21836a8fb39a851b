"""Which partitions a subscription stands for now, and what is said of topics that are not there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster, Topic
from moldau.spark.option_values import did_you_mean
from moldau.spark.options import ReadOptions, Subscription

LOOK_SECONDS: Final = 2.0
"""For a first look at the cluster; whoever reads has more patience."""


def refuse_missing(options: ReadOptions) -> None:
    """KafkaError if the cluster answers and lacks what is named. Whatever else is wrong is told when it is read."""
    if options.subscription.pattern is not None:
        return
    cluster = Cluster(options.bootstrap, options.properties, LOOK_SECONDS)
    try:
        subscribed_partitions(cluster, options.subscription)
    except KafkaError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    except (OSError, MalformedData):
        return  # the read asks again, and waits for an answer
    finally:
        cluster.close()


def subscribed_partitions(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """A named topic or partition that is missing is an error. Patterns leave internal topics out."""
    names = _names(cluster, subscription)
    found = {TopicPartition(name, index) for name in names for index in _topic(cluster, name).leaders}
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


def _topic(cluster: Cluster, name: str) -> Topic:
    try:
        return cluster.topic(name)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        others = [topic.name for topic in cluster.topics().values() if not topic.is_internal]
        hint = did_you_mean(name, others, {}) or f"; `moldau topic create {name}` makes it"
        raise KafkaError(error.code, f"{error}{hint}") from None
