"""Clients follow leaders: the node of a leader, a coordinator or the controller is killed; no client reports an error.

Three nodes in this process; a producer and a group of each library run while the leader of a partition, the coordinator
of the group and the controller are killed one after the other and come back. Producers retry; an error that they still
report would be one that Kafka does not cause. Without more depth each library meets one or two of these deaths, and
each of them several libraries.
"""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import uuid
from collections.abc import Callable, Iterator

import pytest
from clients import confluent_consumer, poll_messages
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from failover_roles import await_in_sync, controller_of, coordinator_of, create_replicated, leader_of
from failover_senders import KAFKA_LIBS, SENDERS, Sender, java
from group_readers import FLAVOURS, Read, Reader
from harness.depth import sample
from harness.patience import PATIENCE_S, wait_until

from moldau.testing import TestCluster, cluster

pytestmark = [pytest.mark.moldau_only, pytest.mark.usefixtures("sockets_are_collected_at_once")]
PARTITIONS = 3


class JavaReader(Reader):
    """Apache Kafka's own client in its VerifiableConsumer."""

    def read(self) -> None:
        words = ["VerifiableConsumer", "--bootstrap-server", self.bootstrap, "--topic", self.topics[0], "--group-id",
                 self.group, "--reset-policy", "earliest", "--verbose", "--session-timeout", "6000"]  # fmt: skip
        with java(words, "heartbeat.interval.ms=200\nfetch.max.wait.ms=100\n") as process:
            self.process = process
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line) if line.startswith("{") else {"name": ""}
                if event["name"] == "record_data":
                    self.found.append(
                        Read(event["topic"], event["partition"], event["offset"], event["value"].encode())
                    )

    def close(self) -> None:
        self.process.terminate()
        super().close()


READERS: dict[str, Callable[..., Reader]] = {
    "confluent": FLAVOURS["confluent-cooperative"].open,
    "confluent, consumer protocol": FLAVOURS["confluent-consumer"].open,
    "kafka-python": FLAVOURS["kafka-python"].open,
    "aiokafka": FLAVOURS["aiokafka"].open,
    "java": JavaReader,
}
needs_java = pytest.mark.skipif(
    not KAFKA_LIBS or not shutil.which("java"),
    reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars, or no java is on the PATH",
)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[TestCluster]:
    with cluster(offsets_topic_num_partitions=4) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(three_nodes: TestCluster) -> str:
    """The first node's address."""
    return three_nodes.bootstrap_servers.split(",")[0]


@pytest.fixture
def topic(three_nodes: TestCluster, admin: AdminClient) -> str:
    name = f"failover-{uuid.uuid4().hex[:8]}"
    create_replicated(three_nodes, admin, name, PARTITIONS)
    return name


@pytest.fixture(autouse=True)
def capture_client_log(caplog: pytest.LogCaptureFixture) -> None:
    """Capture the log of the one client that logs in this process, to explain timeouts."""
    caplog.set_level(logging.DEBUG, "kafka.coordinator")


ROLES: dict[str, Callable[[str, str, str], int]] = {
    "leader": lambda bootstrap, topic, group: leader_of(bootstrap, topic),
    "coordinator": lambda bootstrap, topic, group: coordinator_of(bootstrap, group),
    "controller": lambda bootstrap, topic, group: controller_of(bootstrap),
}


def await_progress(sender: Sender, reader: Reader, what: str) -> None:
    """Wait until records sent from now on are acknowledged in every partition and read."""
    start = len(sender.acked)

    def acked_partitions() -> set[int]:
        assert not sender.errors, sender.errors
        if reader.fault is not None:
            raise reader.fault
        return {partition for partition, _ in sender.acked[start:]}

    wait_until(lambda: len(acked_partitions()) == PARTITIONS, f"all partitions are written {what}")
    wanted = {number for _, number in sender.acked[start : start + PARTITIONS]}
    wait_until(lambda: wanted <= {int(read.value) for read in list(reader.found)}, f"the new records are read {what}")


def stored(three_nodes: TestCluster, topic: str) -> dict[int, list[int]]:
    """Return all values of every partition."""
    consumer = confluent_consumer(three_nodes.bootstrap_servers)
    found: dict[int, list[int]] = {}
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
            consumer.assign([place])
            found[partition] = [int(each.value()) for each in poll_messages(consumer, end)]
    finally:
        consumer.close()
    return found


def check(three_nodes: TestCluster, topic: str, sender: Sender, reader: Reader) -> None:
    assert not sender.errors
    kept = stored(three_nodes, topic)
    acked: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for partition, number in sender.acked:
        acked[partition].append(number)
    assert kept == {partition: sorted(numbers) for partition, numbers in acked.items()}, (
        "each record is stored once and in order"
    )
    read = {(each.partition, int(each.value)) for each in reader.found}
    assert read == set(sender.acked), "the group has read all acknowledged records"


PAIRS = [
    ("confluent", "confluent"),
    ("confluent", "confluent, consumer protocol"),
    ("kafka-python", "kafka-python"),
    ("aiokafka", "aiokafka"),
    ("java", "java"),
]
CASES = [
    pytest.param(*pair, role, marks=needs_java if "java" in pair else ())
    for pair, role in sample(itertools.product(PAIRS, ROLES), 2)
]


@pytest.mark.parametrize(("producing", "consuming", "role"), CASES)
def test_clients_continue_without_errors_after_a_node_is_killed(
    three_nodes: TestCluster, bootstrap: str, admin: AdminClient, topic: str, producing: str, consuming: str, role: str
) -> None:
    group = f"of-{topic}"
    with (
        SENDERS[producing](three_nodes.bootstrap_servers, topic, PARTITIONS) as sender,
        READERS[consuming](three_nodes.bootstrap_servers, group, [topic]) as reader,
    ):
        await_progress(sender, reader, "at first")
        lost = ROLES[role](bootstrap, topic, group)
        three_nodes.kill(lost)
        await_progress(sender, reader, f"without node {lost}, the {role}")
        three_nodes.restart(lost)
        await_in_sync(admin, topic, PARTITIONS)
        await_progress(sender, reader, f"with node {lost} again")
        sender.close()
        wait_until(
            lambda: len({each[1:3] for each in list(reader.found)}) >= len(sender.acked),
            "all acknowledged records are read",
        )
    check(three_nodes, topic, sender, reader)
