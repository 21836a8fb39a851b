"""How the tools that administrate a whole cluster connect to it: by its brokers, or by its controllers (KIP-919)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.cli.kafka.connection import clients

if TYPE_CHECKING:
    from moldau.client.admin.cluster_admin import ClusterAdmin

TIMEOUT_MS: Final = 30_000
ANSWER_SECONDS: Final = 35.0
"""A little longer than a broker may take for a request, so that its error response arrives in time."""


def connect_to_brokers(bootstrap_servers: str, java_config: Mapping[str, str]) -> ClusterAdmin:
    from moldau.client.admin.cluster_admin import ClusterAdmin

    return ClusterAdmin(clients.cluster(bootstrap_servers, java_config, ANSWER_SECONDS), TIMEOUT_MS)


def connect_to_controllers(bootstrap_controllers: str, java_config: Mapping[str, str]) -> ClusterAdmin:
    from moldau.client.admin.cluster_admin import ClusterAdmin
    from moldau.client.controllers import Controllers

    clients.first_reachable(bootstrap_controllers)
    addresses = ",".join(f"{host}:{port}" for host, port in clients.addresses(bootstrap_controllers))
    return ClusterAdmin(Controllers(addresses, java_config, ANSWER_SECONDS), TIMEOUT_MS)


def connect(brokers: str | None, controllers: str | None, java_config: Mapping[str, str]) -> ClusterAdmin:
    """Connect to the controllers if they are named, else to the brokers."""
    if controllers:
        return connect_to_controllers(controllers, java_config)
    return connect_to_brokers(brokers or "", java_config)
