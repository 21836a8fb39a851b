"""The addresses by which a cluster is reached: as Kafka's client reads them."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.client import cluster
from moldau.client.cluster import Cluster, Unreachable


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
