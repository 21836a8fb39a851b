"""A leader that is cut off from all other nodes, and that clients still reach: others are elected, and clients of the
old one go there. No client is told that records which it has read do not exist."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clients import confluent_consumer
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until

from moldau.runtime.coordinators.topic import java_hash
from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only
COUNT = 100
REFUSALS = 5


@pytest.fixture
def nodes() -> Iterator[TestCluster]:
    with cluster() as running:
        yield running


def create(nodes: TestCluster) -> tuple[str, int]:
    """Create a topic with one partition on all nodes; return its name and its leader."""
    name = f"cut-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(PATIENCE_S)
    nodes.wait_for_isr(name, 0, nodes.nodes)
    nodes.wait_for_topic(name)
    return name, nodes.wait_for_leader(name, 0)


def cut_off(nodes: TestCluster, topic: str, leader: int) -> int:
    """Cut the leader off from the other nodes; return the one that they elect."""
    nodes.partition(leader, [node for node in nodes.nodes if node != leader])
    return nodes.wait_for_leader(topic, 0, other_than=leader)


def acknowledgements(bootstrap: str, topic: str) -> Iterator[int]:
    """Send records one after the other; yield how many are acknowledged, again and again."""
    acknowledged: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "request.timeout.ms": 5_000})
    for number in range(COUNT):
        producer.produce(topic, str(number), callback=lambda error, message: acknowledged.append(message.offset()))
    while producer.flush(0.1) >= 0:
        yield len(acknowledged)


def test_a_producer_that_knows_only_the_old_leader_finds_the_new_one(nodes: TestCluster) -> None:
    topic, stale = create(nodes)
    cut_off(nodes, topic, stale)
    sending = acknowledgements(nodes.nodes[stale].address, topic)
    wait_until(lambda: next(sending) == COUNT, "all records are acknowledged", lambda: next(sending), every_s=0.1)
    assert nodes.leader_of(topic, 0) != stale, "it is still cut off"


def test_a_consumer_does_not_begin_again_because_of_a_leader_of_an_old_epoch(
    nodes: TestCluster, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A new process learns its offset, with the new leader epoch, from a coordinator, and the leader from the old one:
    that has no records of the new epoch, which to a consumer means that they were truncated."""
    topic, stale = create(nodes)
    commit(nodes.bootstrap_servers, "first", topic, 0, 0)  # creates the topic of the offsets
    nodes.wait_for_topic("__consumer_offsets")
    produce(nodes.bootstrap_servers, topic)
    newer = cut_off(nodes, topic, stale)
    produce(nodes.nodes[newer].address, topic)
    (third,) = nodes.nodes.keys() - {stale, newer}
    group = group_of(nodes, third)
    commit(nodes.nodes[third].address, group, topic, 2 * COUNT, leader_epoch=1)

    nodes.kill(newer)
    caplog.clear()
    read = tmp_path / "read"
    with reading(nodes.nodes[stale].address, group, topic, str(read)):

        def refusals() -> int:
            return caplog.text.count("others may lead by now")

        # Nobody can be elected, and neither the old leader nor the third node may answer.
        wait_until(lambda: refusals() >= REFUSALS, "the old leader has refused the consumer some times", refusals)
        assert read.read_text() == ""
        nodes.heal()
        wait_until(lambda: nodes.leader_of(topic, 0) not in (None, newer), "a new leader is elected")
        produce(nodes.bootstrap_servers, topic, 1)
        wait_until(read.read_text, "the consumer goes on")
    assert int(read.read_text().split()[0]) == 2 * COUNT


@contextmanager
def reading(*arguments: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, Path(__file__).with_name("lone_reader.py"), *arguments])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def group_of(nodes: TestCluster, coordinator: int) -> str:
    """Return a group that this node coordinates."""
    for number in range(1_000):
        group = f"group-{number}"
        if nodes.leader_of("__consumer_offsets", java_hash(group) % 50) == coordinator:
            return group
    raise AssertionError(f"node {coordinator} coordinates no group")


def commit(bootstrap: str, group: str, topic: str, offset: int, leader_epoch: int) -> None:
    consumer = confluent_consumer(bootstrap, group_id=group)
    position = TopicPartition(topic, 0, offset, leader_epoch=leader_epoch)

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=[position], asynchronous=False)
        except KafkaException:  # the coordinator is being created, or moves
            return False
        return True

    wait_until(is_committed, "the offset is committed")
    consumer.close()


def produce(bootstrap: str, topic: str, count: int = COUNT) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number))
    wait_until(lambda: producer.flush(1) == 0, "all records are acknowledged", lambda: len(producer))
