"""The addresses by which a cluster is reached: as Kafka's client reads them."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from typing import Any

import pytest

from moldau.client import cluster
from moldau.client.channel import Channel
from moldau.client.cluster import Cluster, Unreachable
from moldau.client.requests.metadata import metadata
from moldau.wire.messages.metadata import MetadataResponse


@pytest.mark.parametrize(
    ("addresses", "tried"),
    [
        ("one:1,two:2", [("one", 1), ("two", 2)]),
        (" one:1 ,, two:2,", [("one", 1), ("two", 2)]),
        ("SASL_SSL://one:1,SSL://[::1]:2", [("one", 1), ("::1", 2)]),
    ],
)
def test_all_addresses_are_tried(addresses: str, tried: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A protocol in front changes nothing: `security.protocol` says which it is."""
    connections = []

    def refuse(host: str, port: int, *_: Any) -> None:
        connections.append((host, port))
        raise ConnectionRefusedError

    monkeypatch.setattr(cluster, "Channel", refuse)
    with pytest.raises(Unreachable):
        Cluster(addresses, {}).nodes()
    assert connections == tried


@pytest.mark.parametrize("address", ["one", "SSL://one", "one:0", "one:65536", "", ","])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        Cluster(address, {}).nodes()


class Attempts:
    """Nodes to connect to: which time each attempt was given. A frozen node accepts connections and says nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, float | None]] = []
        self.errors: dict[str, list[OSError]] = {}
        monkeypatch.setattr(cluster, "Channel", self._connect)

    def _connect(self, host: str, port: int, security: Any, timeout_seconds: float, seconds: float | None) -> Any:
        self.made.append((host, seconds))
        if self.errors.get(host):
            raise self.errors[host].pop(0)
        return Answering(host)


class Answering:
    def __init__(self, host: str) -> None:
        self.host = host
        self.in_flight = 0

    def waiting(self, seconds: float) -> Any:
        return nullcontext()

    def ask(self, *_: Any) -> Any:
        return MetadataResponse()

    def close(self) -> None: ...


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    return Attempts(monkeypatch)


def test_a_frozen_node_does_not_keep_a_command_from_asking_the_next_one(attempts: Attempts) -> None:
    attempts.errors = {"frozen": [TimeoutError()]}
    Cluster("frozen:1,well:2", {}, 20, failover_seconds=2).nodes()
    assert attempts.made == [("frozen", 2), ("well", 2)]


def test_a_busy_node_gets_all_the_time_if_no_other_answers(attempts: Attempts) -> None:
    attempts.errors = {"busy": [TimeoutError()], "down": [ConnectionRefusedError()]}
    Cluster("busy:1,down:2", {}, 20, failover_seconds=2).nodes()
    assert attempts.made == [("busy", 2), ("down", 2), ("busy", None)]


def test_the_only_node_gets_all_the_time(attempts: Attempts) -> None:
    Cluster("one:1", {}, 20, failover_seconds=2).nodes()
    assert attempts.made == [("one", None)]


def test_a_request_with_less_time_connects_within_it(attempts: Attempts) -> None:
    """Who reads records meanwhile waits no longer for a new connection than for the answer."""
    metadata(Cluster("one:1", {}, 20).asking_within(1))
    metadata(Cluster("two:1", {}, 20).asking_within(35))
    assert attempts.made == [("one", 1), ("two", None)]


def test_the_time_to_connect_limits_the_first_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(TimeoutError):
            Channel("127.0.0.1", port, None, 60, 0.05)
