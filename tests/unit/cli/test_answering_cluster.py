"""`answering_cluster`: failures while a command is connected to a cluster."""

from __future__ import annotations

import re

import pytest

from moldau.cli import connect
from moldau.cli.cluster.connect import answering_cluster
from moldau.cli.connect import COMPLETION_SECONDS, Broker, CommandFailed
from moldau.cli.kafka.connection import clients
from moldau.client import cluster


class FakeCluster:
    def __init__(self, bootstrap: str, *_: object) -> None:
        self.bootstrap = bootstrap

    def nodes(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(connect, "first_reachable", lambda *_: "localhost:9092")
    monkeypatch.setattr(cluster, "Cluster", FakeCluster)
    return Broker("localhost:9092", {})


@pytest.mark.parametrize(
    ("given", "address"),
    [("[::1]:9093", "[::1]:9093"), ("[::1]", "[::1]:9092"), ("PLAINTEXT://localhost", "localhost:9092")],
)
def test_the_client_gets_host_and_port(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, given: str, address: str
) -> None:
    asked: list[object] = []

    class NotingCluster(FakeCluster):
        def __init__(self, bootstrap: str, *arguments: object) -> None:
            super().__init__(bootstrap)
            asked.append(bootstrap)

    monkeypatch.setattr(connect, "first_reachable", lambda *_: given)
    monkeypatch.setattr(cluster, "Cluster", NotingCluster)
    with answering_cluster(Broker(given, {})):
        assert asked == [address]


def test_the_client_gets_all_addresses_the_one_that_accepts_connections_first(
    monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    monkeypatch.setattr(connect, "first_reachable", lambda *_: "two:2")
    with answering_cluster(Broker("one, SSL://two:2,three:3", {})) as answering:
        assert answering.bootstrap == "two:2,one:9092,three:3"


def test_shell_completion_waits_no_longer_for_one_of_several_brokers(
    monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    given: list[tuple[object, ...]] = []
    monkeypatch.setattr(cluster, "Cluster", lambda *arguments: given.append(arguments))
    broker.cluster(COMPLETION_SECONDS)
    assert given == [("localhost:9092", {}, COMPLETION_SECONDS, None, COMPLETION_SECONDS)]


def test_a_tool_with_a_short_timeout_waits_no_longer_for_one_of_several_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[object, ...]] = []
    monkeypatch.setattr(clients, "first_reachable", lambda *_: ("one", 1))
    monkeypatch.setattr(cluster, "Cluster", lambda *arguments: given.append(arguments))
    clients.cluster("one:1,two:2", {}, 0.5)
    assert given == [("one:1,two:2", {}, 0.5, None, 0.5)]


def test_the_error_for_a_lost_connection_is_one_line(broker: Broker) -> None:
    line = "the cluster at localhost:9092 stopped answering: closed"
    with pytest.raises(CommandFailed, match=rf"^{re.escape(line)}$"), answering_cluster(broker):
        raise ConnectionError("closed")


def test_a_closed_output_is_not_reported_as_a_lost_connection(broker: Broker) -> None:
    with pytest.raises(BrokenPipeError), answering_cluster(broker):
        raise BrokenPipeError(32, "Broken pipe")
