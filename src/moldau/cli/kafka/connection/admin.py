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


def connect_to_brokers(bootstrap_servers: str, java_config: Mapping[str, str]) -> ClusterAdmin:
    from moldau.client.cluster_admin import ClusterAdmin

    return ClusterAdmin(clients.cluster(bootstrap_servers, java_config, ANSWER_SECONDS), TIMEOUT_MS)


def connect_to_controllers(bootstrap_controllers: str, java_config: Mapping[str, str]) -> ClusterAdmin:
    from moldau.client.cluster_admin import ClusterAdmin
    from moldau.client.controllers import Controllers

    clients.reach(bootstrap_controllers)
    known = ",".join(f"{host}:{port}" for host, port in clients.addresses(bootstrap_controllers))
    return ClusterAdmin(Controllers(known, java_config, ANSWER_SECONDS), TIMEOUT_MS)


def connect(brokers: str | None, controllers: str | None, java_config: Mapping[str, str]) -> ClusterAdmin:
    """By whichever of the two was named."""
    return (
        connect_to_controllers(controllers, java_config)
        if controllers
        else connect_to_brokers(brokers or "", java_config)
    )
