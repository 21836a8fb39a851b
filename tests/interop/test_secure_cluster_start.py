"""`moldau cluster start --secure`: three nodes, one of which is killed; no listener accepts unauthenticated clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.depth import only_deep
from harness.patience import PATIENCE_S, wait_until
from test_cluster_command import RunningCluster, moldau

from moldau.base.properties import parse
from moldau.cli.cluster.directory import ClusterDirectory, Description
from moldau.client.channel import Channel
from moldau.client.properties import for_librdkafka, security

pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = RunningCluster(tmp_path_factory.mktemp("secure") / "cluster", 3, "--secure", "--listen", "127.0.0.1")
    try:
        running.line_with("moldau user add ann")
        yield running
    finally:
        running.kill_what_is_left()


def description(cluster: RunningCluster) -> Description:
    return ClusterDirectory(cluster.data_dir).description()


def properties(cluster: RunningCluster) -> dict[str, str]:
    return {each.key: each.value for each in parse((cluster.data_dir / "client.properties").read_text())}


def config(cluster: RunningCluster) -> dict[str, Any]:
    servers = description(cluster).bootstrap_servers
    return {"bootstrap.servers": servers, "log_level": 0, **for_librdkafka(properties(cluster))}


def test_the_password_is_in_one_file_only(cluster: RunningCluster) -> None:
    found = re.search(r'password="([^"]+)"', properties(cluster)["sasl.jaas.config"])
    assert found
    password = found[1]
    assert password not in "\n".join(cluster.printed)  # the output is not a terminal
    files = [path for path in cluster.data_dir.rglob("*") if path.is_file()]
    assert [path.name for path in files if password.encode() in path.read_bytes()] == ["client.properties"]
    assert cluster.data_dir.stat().st_mode & 0o777 == 0o700


def test_no_listener_accepts_an_unauthenticated_client(cluster: RunningCluster) -> None:
    trusted = {key: value for key, value in properties(cluster).items() if key.startswith("ssl.")}
    without_certificate = security({**trusted, "security.protocol": "SSL"})
    node = description(cluster).nodes[0]
    for port in (node.port, node.controller_port, node.internal_port):
        with pytest.raises(OSError):
            Channel("127.0.0.1", port)
    for port in (node.controller_port, node.internal_port):
        with pytest.raises(OSError):
            Channel("127.0.0.1", port, without_certificate)


@only_deep
def test_a_secured_cluster_survives_a_killed_node(cluster: RunningCluster) -> None:
    admin = AdminClient(config(cluster))
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(PATIENCE_S)
    producer = Producer({**config(cluster), "acks": "all"})
    outcomes: list[Any] = []
    for number in range(60):
        producer.produce("orders", b"%d" % number, on_delivery=lambda error, _: outcomes.append(error))
    assert cluster.states()[2]["state"] == "up"
    quorum = {"leader", "follower"}
    wait_until(lambda: {row["quorum"] for row in cluster.states().values()} == quorum, "the quorum has a leader")
    cluster.run("kill", "2")
    for number in range(60):
        producer.produce("orders", b"%d" % number, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == [None] * 120
    cluster.run("restart", "2")
    wait_until(lambda: _in_sync(admin) == 9, "all replicas are in sync again")
    client_file = str(cluster.data_dir / "client.properties")
    described = moldau("describe", "-b", description(cluster).nodes[0].address, "--command-config", client_file)
    assert "3 brokers, 1 topic, 3 partitions; all in sync" in described.stdout


def _in_sync(admin: AdminClient) -> int:
    partitions = admin.list_topics(timeout=PATIENCE_S).topics["orders"].partitions
    return sum(len(partition.isrs) for partition in partitions.values())


def test_a_secured_cluster_stops_cleanly(cluster: RunningCluster) -> None:
    assert "stopped" in cluster.run("stop").stdout
    assert cluster.wait_for_end() == 0
    refused = moldau("start", "-d", str(cluster.data_dir))
    assert "is secured; start it with --secure" in refused.stderr
