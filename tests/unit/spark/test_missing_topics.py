"""Errors for missing topics and partitions of a subscription."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, cast

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster, Topic
from moldau.spark.options import Subscription, read_options
from moldau.spark.subscribed import check_topics_exist, subscribed_partitions


class Topics:
    """The part of a cluster that a subscription needs."""

    def __init__(self, *names: str, internal: tuple[str, ...] = ()) -> None:
        both = [(name, False) for name in names] + [(name, True) for name in internal]
        self._topics = {name: Topic(name, b"", {0: 1, 1: 1}, is_internal) for name, is_internal in both}

    def refresh(self, names: object) -> None:
        pass

    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic(self, name: str) -> Topic:
        if name not in self._topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name} at here:9092")
        return self._topics[name]


def partitions(cluster: Topics, **subscription: Any) -> list[TopicPartition]:
    return subscribed_partitions(cast(Cluster, cluster), Subscription(**subscription))


def test_a_subscription_has_all_partitions_of_its_topic() -> None:
    assert partitions(Topics("orders"), topics=("orders",)) == [("orders", 0), ("orders", 1)]


def test_a_misspelt_topic_gets_a_suggestion() -> None:
    with pytest.raises(KafkaError, match="There is no topic ordes at here:9092; did you mean orders") as raised:
        partitions(Topics("orders", "clicks"), topics=("ordes",))
    assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_missing_topic_is_reported_with_the_create_command() -> None:
    with pytest.raises(KafkaError, match=r"no topic payments at here:9092; `moldau topic create payments` makes it"):
        partitions(Topics("orders", internal=("__payments",)), topics=("payments",))


def test_a_missing_partition_is_reported() -> None:
    with pytest.raises(KafkaError, match="There is no partition orders-7"):
        partitions(Topics("orders"), partitions=(TopicPartition("orders", 7),))


def test_no_topic_is_refused_while_the_broker_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, but not listening
        nowhere = f"127.0.0.1:{free.getsockname()[1]}"
        check_topics_exist(read_options({"kafka.bootstrap.servers": nowhere, "subscribe": "t"}, is_stream=None))
