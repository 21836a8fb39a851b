"""Connection limits and the controller mutation quota, set with kafka-configs on a running broker, and real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from harness.hostile_clients import SOURCE, has_address
from harness.patience import PATIENCE_S, wait_until
from wire_client import Wire, message

from moldau.base import counters
from moldau.cli.kafka import configs
from moldau.testing import TestBroker, broker

pytestmark = pytest.mark.moldau_only
THROTTLING_QUOTA_EXCEEDED = 89


@pytest.fixture
def running() -> Iterator[TestBroker]:
    with broker() as started:
        yield started


def alter(running: TestBroker, entity: str, change: str) -> None:
    words = f"--bootstrap-server {running.bootstrap_servers} --alter {entity} --add-config {change}"
    assert configs.main(words.split()) == 0


def connect(running: TestBroker, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = running.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S, (source, 0))


@pytest.mark.skipif(not has_address(SOURCE), reason=f"this machine has no address {SOURCE}")
def test_connections_above_the_rate_of_an_address_are_closed_and_others_are_not(
    running: TestBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    alter(running, f"--entity-type ips --entity-name {SOURCE}", "connection_creation_rate=1")
    sockets = [connect(running, SOURCE) for _ in range(30)]
    wait_until(lambda: running.limit_counters[counters.CONNECTIONS_REFUSED_IP_RATE] >= 15, "connections above the rate")
    assert sockets[-1].recv(1) == b"", "the last connection is closed"
    with Wire(running.bootstrap_servers) as other:
        assert other.ask(message("api_versions", 0)).error_code == 0
    for each in sockets:
        each.close()
    words = f"--bootstrap-server {running.bootstrap_servers} --describe --entity-type ips --entity-name {SOURCE}"
    capsys.readouterr()
    assert configs.main(words.split()) == 0
    assert "connection_creation_rate=1.0" in capsys.readouterr().out


def test_max_connections_can_be_changed_while_the_broker_runs(running: TestBroker) -> None:
    with Wire(running.bootstrap_servers) as first:
        alter(running, "--entity-type brokers --entity-default", "max.connections.per.ip=1")
        wait_until(lambda: first.ask(message("api_versions", 0)).error_code == 0, "the connected client is served")
        refused = running.limit_counters[counters.CONNECTIONS_REFUSED_PER_IP]

        def is_refused() -> bool:
            with connect(running) as late:
                late.settimeout(0.2)
                try:
                    return late.recv(1) == b""
                except TimeoutError:
                    return False

        wait_until(is_refused, "a second connection is closed")
        assert running.limit_counters[counters.CONNECTIONS_REFUSED_PER_IP] > refused


def test_the_mutation_quota_refuses_new_clients_and_throttles_old_ones(running: TestBroker) -> None:
    alter(running, "--entity-type users --entity-default", "controller_mutation_rate=1")
    with Wire(running.bootstrap_servers) as wire:

        def create(name: str, version: int) -> tuple[int, int]:
            topic = {"name": name, "num_partitions": 20, "replication_factor": 1, "assignments": [], "configs": []}
            answer = wire.ask(message("create_topics", version, topics=[topic], timeout=60_000, validate_only=False))
            return answer.topics[0].error_code, answer.throttle_time

        def throttled(name: str, version: int) -> tuple[int, bool]:
            code, throttle = create(name, version)
            return code, bool(throttle)

        assert throttled("first", 7) == (0, False), "a full bucket may be overdrawn once"
        assert throttled("second", 7) == (THROTTLING_QUOTA_EXCEEDED, True)
    wait_until(lambda: running.limit_counters[counters.MUTATIONS_THROTTLED] == 1, "the refusal is counted")
    with Wire(running.bootstrap_servers) as wire:
        assert throttled("third", 5) == (0, True), "version 5 has no error for it: the topic is created"
