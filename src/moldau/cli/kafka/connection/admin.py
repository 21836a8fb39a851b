"""How the tools that speak to a cluster as a whole reach it: by its brokers, or by its controllers (KIP-919)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.cli.kafka.connection import clients

if TYPE_CHECKING:
    from moldau.client.cluster_admin import ClusterAdmin

TIMEOUT_MS: Final = 30_000
ANSWER_SECONDS: Final = 35.0
"""A little more than a request may take at the other end, so that its refusal is heard."""


def by_brokers(bootstrap_servers: str, java: Mapping[str, str]) -> ClusterAdmin:
    from moldau.client.cluster_admin import ClusterAdmin

    return ClusterAdmin(clients.cluster(bootstrap_servers, java, ANSWER_SECONDS), TIMEOUT_MS)


def by_controllers(bootstrap_controllers: str, java: Mapping[str, str]) -> ClusterAdmin:
    from moldau.client.cluster_admin import ClusterAdmin
    from moldau.client.controllers import Controllers

    clients.reach(bootstrap_controllers)
    known = ",".join(f"{host}:{port}" for host, port in clients.addresses(bootstrap_controllers))
    return ClusterAdmin(Controllers(known, java, ANSWER_SECONDS), TIMEOUT_MS)


def connected(brokers: str | None, controllers: str | None, java: Mapping[str, str]) -> ClusterAdmin:
    """By whichever of the two was named."""
    return by_controllers(controllers, java) if controllers else by_brokers(brokers or "", java)
