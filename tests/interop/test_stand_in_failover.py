"""Our stand-in for confluent_kafka while the coordinator of its group dies, and after its process was suspended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient
from failover_roles import coordinator_of, create_replicated
from harness.patience import PATIENCE_S, wait_until

from moldau.client.admin.group_values import DescribedGroup
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster
from moldau.client.stand_in.consumer import Consumer
from moldau.client.stand_in.producer import Producer
from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only
PARTITIONS = 2


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestCluster]:
    settings = {"group.consumer.session.timeout.ms": 1_000, "group.consumer.heartbeat.interval.ms": 200}
    with cluster(offsets_topic_num_partitions=4, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(kafka: TestCluster) -> str:
    return kafka.bootstrap_servers


class Tool:
    """A producer and the only member of a group, both of the stand-in."""

    def __init__(self, kafka: TestCluster) -> None:
        self.topic = f"stand-in-{uuid.uuid4().hex[:8]}"
        self.group = f"{self.topic}-group"
        address = {"bootstrap.servers": kafka.bootstrap_servers}
        create_replicated(kafka, AdminClient(address), self.topic, PARTITIONS)
        self.producer = Producer({**address, "enable.idempotence": True})
        reading = {"group.id": self.group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": "500"}
        self.consumer = Consumer({**address, **reading})
        self.consumer.subscribe([self.topic])
        self.values: list[bytes | None] = []

    def write_and_read(self, text: bytes) -> None:
        wanted = {text + b" %d" % partition for partition in range(PARTITIONS)}
        for partition in range(PARTITIONS):
            self.producer.produce(self.topic, text + b" %d" % partition, partition=partition)
        assert self.producer.flush(PATIENCE_S) == 0

        def is_read() -> bool:
            self.values += [each.value() for each in self.consumer.consume(10, 0.1)]
            return wanted <= set(self.values)

        wait_until(is_read, lambda: f"{wanted}, of which {self.values} came")


@pytest.fixture
def tool(kafka: TestCluster) -> Iterator[Tool]:
    made = Tool(kafka)
    yield made
    made.consumer.close()


def test_a_member_continues_when_its_coordinator_dies(kafka: TestCluster, tool: Tool) -> None:
    tool.write_and_read(b"before")
    killed = coordinator_of(kafka.bootstrap_servers.split(",")[0], tool.group)
    kafka.kill(killed)
    try:
        tool.write_and_read(b"after")
        tool.write_and_read(b"later")
    finally:
        kafka.restart(killed)


def test_a_member_that_slept_longer_than_its_session_rejoins(kafka: TestCluster, tool: Tool) -> None:
    """It has offsets to commit when it polls again."""
    tool.write_and_read(b"before")
    with closing(Cluster(kafka.bootstrap_servers, {})) as aside:

        def is_removed() -> bool:
            found = Groups(aside, 10_000).described([tool.group])[tool.group]
            return isinstance(found, DescribedGroup) and not found.members

        wait_until(is_removed, "the group has removed its member")
    tool.write_and_read(b"after")
