"""Reading topics without a group: how the tools find the partitions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.cli.kafka.console.standalone_consumer import StandaloneConsumer, assign_partition
from moldau.client.cluster import Cluster
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


class Restarting(Cluster):
    """A cluster whose first requests fail with these errors."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__("localhost:1", {})
        self.errors = list(errors)

    def asking_within(self, seconds: float) -> Any:
        def ask(*_: object) -> MetadataResponse:
            if self.errors:
                raise self.errors.pop(0)
            partitions = [MetadataResponsePartition(ErrorCode.NONE, index, 1) for index in range(2)]
            return MetadataResponse(topics=[MetadataResponseTopic(ErrorCode.NONE, "t", partitions=partitions)])

        return ask


class Assigned:
    def __init__(self) -> None:
        self.partitions: list[tuple[str, int]] = []

    def incremental_assign(self, partitions: Any) -> None:
        self.partitions += [(each.topic, each.partition) for each in partitions]

    assign = incremental_assign


@pytest.mark.parametrize("topic", ["t", re.compile("t.*")])
def test_a_broker_that_restarts_at_first_is_waited_for(topic: Any) -> None:
    consumer: Any = Assigned()
    restarting = Restarting(ConnectionRefusedError(), ConnectionResetError())
    StandaloneConsumer(consumer, restarting, topic, 0).refresh(0)
    assert consumer.partitions == [("t", 0), ("t", 1)]


def test_the_one_partition_of_a_broker_that_restarts_is_waited_for() -> None:
    consumer: Any = Assigned()
    assign_partition(consumer, Restarting(ConnectionRefusedError()), "t", 1, 0)
    assert consumer.partitions == [("t", 1)]


def test_a_broker_that_restarts_while_records_are_read_is_not_waited_for() -> None:
    consumer: Any = Assigned()
    cluster = Restarting()
    reading = StandaloneConsumer(consumer, cluster, "t", 0)
    reading.refresh(0)
    cluster.errors = [ConnectionRefusedError(), ConnectionRefusedError()]
    reading.refresh(10)
    assert len(cluster.errors) == 1
    assert len(consumer.partitions) == 2
