"""A cluster with all nodes on this machine: their ports and their settings, with Kafka's names.

For `moldau cluster start`, where each node is a process, and for `moldau.testing`, where all nodes share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

HOST: Final = "127.0.0.1"
REPLICAS: Final = 3
BOOTSTRAP_LISTENER: Final = "BOOTSTRAP"
"""The listener of `moldau start --cores` whose port all nodes share."""

FAST_FAILOVER: Final = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "200",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "500",
}
"""On one machine there is no network delay: a node that is silent for 1.5 seconds is dead. Kafka waits nine."""


@dataclass(frozen=True, slots=True)
class NodeAddress:
    id: int
    port: int
    controller_port: int
    """0 if the node is only a broker."""
    internal_port: int = 0
    """Where the brokers of this machine reach each other; 0 if they use the clients' listener."""
    metrics_port: int = 0
    """Where metrics are served; 0 if they are not."""
    host: str = field(default=HOST, kw_only=True)
    """The host that clients connect to."""

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def roles(self) -> str:
        """The process.roles of a node of `--cores`."""
        return "broker,controller" if self.controller_port else "broker"


def node_properties(node: NodeAddress, nodes: Sequence[NodeAddress], data_dir: str) -> dict[str, str]:
    """Return the server.properties of one node; each node is a broker and a controller."""
    assert all(each.controller_port for each in nodes), "a controller needs a port"
    replicas = str(min(len(nodes), REPLICAS))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{each.id}@{HOST}:{each.controller_port}" for each in nodes),
        "log.dirs": data_dir,
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "2" if len(nodes) >= REPLICAS else "1",
        "min.insync.replicas": "2" if len(nodes) >= REPLICAS else "1",
        **FAST_FAILOVER,
        **({"metrics.listener": f"{HOST}:{node.metrics_port}"} if node.metrics_port else {}),
    }
