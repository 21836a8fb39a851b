"""`moldau.testing.cluster()` as another test suite uses it: faults of nodes, and what real clients see."""

from __future__ import annotations

import gc
import itertools
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients import CLIENTS, confluent_producer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from failover_writers import WRITERS
from group_readers import FLAVOURS, until
from harness.depth import sample
from harness.patience import PATIENCE_S

from moldau.settings import SettingsError
from moldau.testing import TestCluster, cluster

pytestmark = [
    pytest.mark.moldau_only,
    # asyncio of Python 3.11 leaves the socket of a refused connection to the collector; aiokafka causes many.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_names = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def shared() -> Iterator[TestCluster]:
    with cluster(offsets_topic_num_partitions=3, group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture
def kafka(shared: TestCluster) -> Iterator[TestCluster]:
    """The cluster of this file, with all nodes running again after each test."""
    yield shared
    shared.heal()
    for node in shared.nodes.values():
        if node.is_paused:
            node.resume()
        if not node.is_running:
            shared.restart(node.id, wait=False)
    for node in shared.nodes.values():
        node.await_ready()
    gc.collect()


def new_topic(kafka: TestCluster, partitions: int = 1) -> str:
    """Create a topic with a replica on every node, all in sync."""
    name = f"topic-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    try:
        admin.create_topics([NewTopic(name, partitions, len(kafka.nodes))], operation_timeout=PATIENCE_S)[name].result(
            PATIENCE_S
        )
    except KafkaException as refused:
        # The response was lost with a node that died, so the broker or the client repeated the request.
        if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    kafka.wait_for_topic(name)
    for partition in range(partitions):
        kafka.wait_for_isr(name, partition, kafka.nodes)
        kafka.wait_for_leader(name, partition)
    return name


def write(kafka: TestCluster, topic: str, *values: bytes) -> float:
    """Return the seconds until all in-sync replicas acknowledged."""
    producer = confluent_producer(kafka.bootstrap_servers, acks="all")
    faults: list[object] = []
    began = time.monotonic()
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: faults.append(error) if error else None
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not faults
    return time.monotonic() - began


def values_of(kafka: TestCluster, topic: str, count: int) -> list[bytes | None]:
    return [message.value for message in CLIENTS["confluent"].consume(kafka.bootstrap_servers, topic, count)]


def was_left_cleanly(kafka: TestCluster, node_id: int) -> bool:
    return (kafka.nodes[node_id].data_dir / CLEAN_SHUTDOWN).exists()


def test_the_cluster_has_three_brokers_and_one_controller(moldau_cluster: TestCluster) -> None:
    admin = AdminClient({"bootstrap.servers": moldau_cluster.bootstrap_servers})
    known = admin.list_topics(timeout=PATIENCE_S)
    addresses = {f"{broker.host}:{broker.port}" for broker in known.brokers.values()}
    assert addresses == set(moldau_cluster.bootstrap_servers.split(","))
    assert sorted(known.brokers) == sorted(moldau_cluster.nodes) == [1, 2, 3]
    assert moldau_cluster.controller() in (1, 2, 3)
    assert len({node.data_dir for node in moldau_cluster.nodes.values()}) == 3


def test_kafka_settings_are_accepted_and_mistakes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"num\.partitions"):
        TestCluster(tmp_path, properties={"num.partitions": "none"})
    with pytest.warns(UserWarning, match=r"did you mean num\.partitions"):
        made = TestCluster(tmp_path, nodes=5, properties={"num.partition": 3, "auto.create.topics.enable": False})
    assert len(made.nodes) == 5
    assert not made.nodes[4].settings.auto_create_topics_enable


@pytest.mark.parametrize("victim", ["leader", "controller"])
def test_acknowledged_records_survive_the_death_of_a_node(kafka: TestCluster, victim: str) -> None:
    topic = new_topic(kafka)
    write(kafka, topic, b"before")
    killed = kafka.leader_of(topic, 0) if victim == "leader" else kafka.controller()
    assert killed is not None
    kafka.kill(killed)
    assert not kafka.nodes[killed].is_running
    assert not was_left_cleanly(kafka, killed)
    kafka.wait_for(lambda: kafka.controller() not in (None, killed), what="another controller")
    kafka.wait_for(lambda: killed not in kafka.isr_of(topic, 0), what="an ISR without the killed node")
    assert kafka.leader_of(topic, 0) not in (None, killed)
    write(kafka, topic, b"meanwhile")
    kafka.restart(killed)
    kafka.wait_for_isr(topic, 0, [1, 2, 3])
    assert values_of(kafka, topic, 2) == [b"before", b"meanwhile"]


def test_a_node_that_stops_hands_over_its_leaderships_first(kafka: TestCluster) -> None:
    topic = new_topic(kafka, partitions=3)
    leader = kafka.leader_of(topic, 0)
    assert leader is not None
    kafka.stop(leader)
    assert was_left_cleanly(kafka, leader)
    assert leader not in [kafka.leader_of(topic, partition) for partition in range(3)]
    write(kafka, topic, b"after")
    assert values_of(kafka, topic, 1) == [b"after"]


def test_a_suspended_node_is_replaced_as_leader_and_rejoins_the_isr(kafka: TestCluster) -> None:
    topic = new_topic(kafka)
    suspended = kafka.leader_of(topic, 0)
    assert suspended is not None
    kafka.pause(suspended)
    assert kafka.wait_for_leader(topic, 0, other_than=suspended) != suspended
    write(kafka, topic, b"without it")
    kafka.resume(suspended)
    kafka.wait_for_isr(topic, 0, [1, 2, 3])
    assert values_of(kafka, topic, 1) == [b"without it"]


def test_a_suspended_node_can_be_killed(kafka: TestCluster) -> None:
    topic = new_topic(kafka)
    suspended = kafka.leader_of(topic, 0)
    assert suspended is not None
    kafka.pause(suspended)
    kafka.kill(suspended)
    assert not kafka.nodes[suspended].is_running
    assert kafka.wait_for_leader(topic, 0, other_than=suspended) != suspended


def test_a_disconnected_node_loses_its_leaderships_and_the_others_continue(kafka: TestCluster) -> None:
    topic = new_topic(kafka)
    alone = kafka.leader_of(topic, 0)
    assert alone is not None
    others = set(kafka.nodes) - {alone}
    kafka.partition(alone, others)
    kafka.wait_for_leader(topic, 0, other_than=alone)
    kafka.wait_for(lambda: kafka.controller() in others, what="a controller on the larger side")
    kafka.heal()
    kafka.wait_for_isr(topic, 0, [1, 2, 3])
    write(kafka, topic, b"together again")
    assert values_of(kafka, topic, 1) == [b"together again"]


def test_a_slow_network_makes_acknowledgements_slow(kafka: TestCluster) -> None:
    topic = new_topic(kafka)
    leader = kafka.leader_of(topic, 0)
    assert leader is not None
    write(kafka, topic, b"first")
    for node_id in kafka.nodes:
        kafka.delay(node_id, set(kafka.nodes) - {node_id}, 120)
    assert write(kafka, topic, b"second") > 0.1, "faster than the delay of the network"


def test_a_stopped_cluster_starts_again_with_all_its_data(tmp_path: Path) -> None:
    with cluster(data_dir=tmp_path, nodes=3) as first:
        topic = new_topic(first)
        write(first, topic, b"kept")
    with cluster(data_dir=tmp_path, nodes=3) as second:
        assert second.wait_for_leader(topic, 0)
        assert values_of(second, topic, 1) == [b"kept"]


def test_a_node_without_a_quorum_waits_for_it_and_can_be_stopped_or_killed(kafka: TestCluster) -> None:
    topic = new_topic(kafka)
    write(kafka, topic, b"before")
    for node_id in kafka.nodes:
        kafka.kill(node_id)
    assert kafka.controller() is None
    for end in (kafka.kill, kafka.stop):
        kafka.restart(1, wait=False)
        with pytest.raises(TimeoutError):
            kafka.wait_for(lambda: kafka.nodes[1].node, timeout_s=0.3)
        assert kafka.nodes[1].is_running
        end(1)
        assert not kafka.nodes[1].is_running
    for node_id in kafka.nodes:
        kafka.restart(node_id, wait=False)
    kafka.wait_for_isr(topic, 0, kafka.nodes)
    assert values_of(kafka, topic, 1) == [b"before"]


def test_calls_on_a_killed_node_and_timeouts_are_errors(kafka: TestCluster) -> None:
    kafka.kill(2)
    with pytest.raises(ValueError, match="node 2 is not running"):
        kafka.kill(2)
    with pytest.raises(ValueError, match="node 2 is not running"):
        kafka.pause(2)
    with pytest.raises(TimeoutError, match=r"pigs that fly did not come true within 0\.05 s"):
        kafka.wait_for(lambda: False, timeout_s=0.05, what="pigs that fly")
    assert kafka.leader_of("no such topic", 0) is None


LIBRARIES = [
    ("confluent", "confluent-cooperative"),
    ("confluent", "confluent-consumer"),
    ("kafka-python", "kafka-python"),
    ("aiokafka", "aiokafka"),
]


@pytest.mark.parametrize(("writing", "reading"), sample(LIBRARIES, 3))
def test_clients_write_and_read_despite_the_death_of_the_leader(
    kafka: TestCluster, writing: str, reading: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Capture the log of the one client that logs in this process, to explain timeouts.
    caplog.set_level(logging.DEBUG, "kafka.coordinator")
    caplog.set_level(logging.DEBUG, "kafka.cluster")
    topic = new_topic(kafka)
    bootstrap = kafka.bootstrap_servers
    reader = FLAVOURS[reading].open(bootstrap, f"group of {topic}", [topic])
    with reader, WRITERS[writing](bootstrap, topic) as writer:
        until(lambda: len(reader.found) > 30, "the reader gets records", [reader])
        leader = kafka.leader_of(topic, 0)
        assert leader is not None
        kafka.kill(leader)
        kafka.wait_for_leader(topic, 0, other_than=leader)
        seen = writer.acknowledged
        until(lambda: writer.acknowledged > seen + 30, "the writer continues with the new leader", [reader])
        kafka.restart(leader)
        kafka.wait_for_isr(topic, 0, [1, 2, 3])
        writer.close()
        expected = [str(number).encode() for number in range(writer.written)]
        until(
            lambda: {read.value for read in reader.found} >= set(expected), "the reader has read all records", [reader]
        )
    assert values_of(kafka, topic, len(expected)) == expected
