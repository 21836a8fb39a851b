"""`moldau start --cores`: several processes act as one broker. Nodes are killed, restarted, stopped and added."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until
from test_cluster_command import RunningCluster, lives, pids, was_left_cleanly

from moldau.base.properties import parse
from moldau.cli.cluster.directory import is_free
from moldau.client.channel import Channel
from moldau.client.properties import for_librdkafka
from moldau.wire.apis import ApiKey
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.moldau_only
PARTITIONS = 4


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


def free_port(count: int = 4) -> int:
    """Return a free port; those above it are free too that the nodes use for clients and for each other."""
    while True:
        port = random.randrange(20_000, 31_000)
        if all(is_free(port + above + number) for above in (0, 1000, 2000) for number in range(count)):
            return port


class RunningBroker(RunningCluster):
    """`moldau start --cores` in a process of its own, and its output."""

    def __init__(self, data_dir: Path, port: int, cores: int, *words: str) -> None:
        self.port = port
        listen = ["--listen", f"127.0.0.1:{port}", "-d", str(data_dir), "-o", "group.initial.rebalance.delay.ms=0"]
        self._begin(data_dir, ["start", "--cores", str(cores), *listen, *words])

    @property
    def config(self) -> dict[str, Any]:
        config = {"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0}
        file = self.data_dir / "client.properties"
        if not file.exists():
            return config
        return config | for_librdkafka({each.key: each.value for each in parse(file.read_text())})

    def create(self, topic: str, partitions: int = PARTITIONS) -> Counter[int]:
        """Create a topic; return how many partitions each node leads."""
        admin = AdminClient(self.config)
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(PATIENCE_S)

        def leaders() -> Counter[int] | None:
            found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values()
            return Counter(each.leader for each in found) if len(found) == partitions else None

        return wait_until(leaders, f"{topic} has {partitions} partitions")

    def produce(self, topic: str, values: list[bytes], transactional_id: str | None = None) -> None:
        """Write values to all partitions in turn; each is acknowledged."""
        transactional = {"transactional.id": transactional_id} if transactional_id else {}
        producer = Producer({**self.config, **transactional})
        errors: list[Any] = []
        if transactional_id:
            producer.init_transactions(PATIENCE_S)
            producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(
                topic, value, partition=number % PARTITIONS, on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(PATIENCE_S) == 0
        if transactional_id:
            producer.commit_transaction(PATIENCE_S)
        assert errors == [None] * len(values)

    def consume(self, topic: str, count: int, group: str) -> list[bytes]:
        """Read committed values as a new member of a group, and commit the offsets."""
        options = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**self.config, **options})
        consumer.subscribe([topic])
        values: list[bytes] = []

        def read() -> bool:
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                values.append(message.value())
            return len(values) >= count

        wait_until(read, lambda: f"{len(values)} of {count} records were read", progress=lambda: len(values))
        consumer.commit(asynchronous=False)
        consumer.close()
        return sorted(values)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait_for_end()


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(first, first + count)]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def metadata_of(port: int) -> MetadataResponse:
    with Channel("127.0.0.1", port) as channel:
        return channel.ask(ApiKey.METADATA, MetadataRequest(topics=None), MetadataResponse)


def test_two_nodes_act_as_one_broker(data_dir: Path) -> None:
    port = free_port()
    broker = RunningBroker(data_dir, port, 2)
    try:
        line = broker.line_with("is ready after")
        assert f"127.0.0.1:{port} (nodes 1-2 on ports {port + 1}-{port + 2}" in line
        assert {node: row["state"] for node, row in broker.states().items()} == {1: "up", 2: "up"}
        assert broker.create("orders") == {1: 2, 2: 2}
        for _ in range(8):  # the kernel chooses which node accepts the connection
            assert {each.node_id: each.port for each in metadata_of(port).brokers} == {1: port + 1, 2: port + 2}
            assert {each.rack for each in metadata_of(port).brokers} == {"machine-1"}
        broker.produce("orders", numbered(0, 40))
        broker.produce("orders", numbered(40, 40), "writer")
        assert broker.consume("orders", 80, "readers") == numbered(0, 80)

        for node_id, first in ((2, 80), (1, 120)):  # node 1 is the controller
            os.kill(broker.states()[node_id]["pid"], signal.SIGKILL)
            broker.line_with(f"node {node_id} was killed (SIGKILL); it is restarted now")
            broker.line_with(f"node {node_id} is up")
            broker.produce("orders", numbered(first, 40))
        assert broker.consume("orders", 80, "readers") == numbered(80, 80)  # the group's offsets are there too

        processes = pids(data_dir)
        assert len(processes) == 2
        assert broker.terminate() == 0
        assert not any(map(lives, processes))
        assert was_left_cleanly(data_dir, 1)
        assert was_left_cleanly(data_dir, 2)
    finally:
        broker.kill_what_is_left()
    _check_a_third_node_is_added(data_dir, port)


def _check_a_third_node_is_added(data_dir: Path, port: int) -> None:
    broker = RunningBroker(data_dir, port, 3, "--log-format", "json")
    try:
        broker.line_with("is ready after")
        assert broker.consume("orders", 160, "others") == numbered(0, 160)
        assert broker.create("parcels", 6) == {1: 2, 2: 2, 3: 2}
        processes = pids(data_dir)
        assert len(processes) == 3
        broker.process.kill()
        wait_until(lambda: not any(map(lives, processes)), "the nodes stop when their supervisor is killed")
        assert all(was_left_cleanly(data_dir, node_id) for node_id in (1, 2, 3))
    finally:
        broker.kill_what_is_left()
    assert all(line.startswith("{") for line in broker.printed)


def test_a_secured_broker_of_two_nodes(data_dir: Path) -> None:
    broker = RunningBroker(data_dir, free_port(), 2, "--secure")
    try:
        broker.line_with("moldau user add ann")
        assert broker.create("orders") == {1: 2, 2: 2}
        broker.produce("orders", numbered(0, 8), "writer")  # markers go from node to node
        assert broker.consume("orders", 8, "readers") == numbered(0, 8)
        with pytest.raises(OSError):
            metadata_of(broker.port)
        assert broker.terminate() == 0
    finally:
        broker.kill_what_is_left()


def whole_metadata(port: int) -> MetadataResponse | None:
    metadata = metadata_of(port)
    return metadata if len(metadata.brokers) == 4 and metadata.topics else None


def test_replicas_are_spread_over_machines_and_survive_the_loss_of_one(tmp_path: Path) -> None:
    """A machine with two nodes and two with one: three racks, three controllers."""
    first = free_port(30)
    ports = [first, first + 10, first + 20]
    machines = ["--machines", ",".join(f"127.0.0.1:{port}" for port in ports)]
    machines += ["-o", "broker.session.timeout.ms=3000", "-o", "broker.heartbeat.interval.ms=500"]
    brokers: list[RunningBroker] = []
    try:
        for port, cores in zip(ports, (2, 1, 1), strict=True):
            brokers.append(RunningBroker(tmp_path / str(port), port, cores, *machines))
        for broker in brokers:
            broker.line_with("is ready after")
        assert brokers[2].create("orders").keys() <= {1, 2, 101, 201}
        # Another node may learn of the topic and of the nodes a moment later.
        metadata = wait_until(lambda: whole_metadata(ports[1]), "the second machine knows the topic and all nodes")
        racks = {each.node_id: each.rack for each in metadata.brokers}
        assert racks == {
            node: f"127.0.0.1:{port}" for node, port in zip((1, 2, 101, 201), (ports[0], *ports), strict=True)
        }
        (topic,) = metadata.topics
        for partition in topic.partitions:
            assert len({racks[replica] for replica in partition.replica_nodes}) == 3
        brokers[0].produce("orders", numbered(0, 8))
        # The topic of groups has three replicas: it cannot be created when only two nodes are left.
        assert brokers[2].consume("orders", 8, "early readers") == numbered(0, 8)
        machine = pids(brokers[0].data_dir)
        assert len(machine) == 2
        brokers[0].process.kill()
        for pid in machine:
            with suppress(ProcessLookupError):  # a node that ended with its supervisor
                os.kill(pid, signal.SIGKILL)
        brokers[1].produce("orders", numbered(8, 8))
        assert brokers[2].consume("orders", 16, "readers") == numbered(0, 16)
    finally:
        for broker in brokers:
            broker.kill_what_is_left()
