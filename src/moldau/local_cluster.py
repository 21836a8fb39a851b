"""A cluster with all nodes on this machine: their ports and their settings, with Kafka's names.

For `moldau cluster start`, where each node is a process, and for `moldau.testing`, where all nodes share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from moldau.base.settings.cluster import (
    BROKER_HEARTBEAT_INTERVAL_MS,
    BROKER_SESSION_TIMEOUT_MS,
    CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS,
    CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS,
    CONTROLLER_QUORUM_FETCH_TIMEOUT_MS,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_LAG_TIME_MAX_MS,
)
from moldau.base.settings.groups import OFFSETS_TOPIC_REPLICATION_FACTOR
from moldau.base.settings.log import DEFAULT_REPLICATION_FACTOR, LOG_DIRS, MIN_INSYNC_REPLICAS
from moldau.base.settings.node import (
    ADVERTISED_LISTENERS,
    CONTROLLER_LISTENER_NAMES,
    CONTROLLER_QUORUM_VOTERS,
    INTER_BROKER_LISTENER_NAME,
    LISTENERS,
    NODE_ID,
    PROCESS_ROLES,
)
from moldau.base.settings.own import METRICS_LISTENER
from moldau.base.settings.share_coordinator import (
    SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR,
    SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR,
)
from moldau.base.settings.transactions import TRANSACTION_STATE_LOG_MIN_ISR, TRANSACTION_STATE_LOG_REPLICATION_FACTOR

HOST: Final = "127.0.0.1"
REPLICAS: Final = 3
BOOTSTRAP_LISTENER: Final = "BOOTSTRAP"
"""The listener of `moldau start --cores` whose port all nodes share."""

FAST_FAILOVER: Final = {
    BROKER_HEARTBEAT_INTERVAL_MS.name: "200",
    BROKER_SESSION_TIMEOUT_MS.name: "1500",
    CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS.name: "500",
    CONTROLLER_QUORUM_FETCH_TIMEOUT_MS.name: "1000",
    CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS.name: "200",
    REPLICA_LAG_TIME_MAX_MS.name: "5000",
    REPLICA_FETCH_WAIT_MAX_MS.name: "500",
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
        PROCESS_ROLES.name: "broker,controller",
        NODE_ID.name: str(node.id),
        LISTENERS.name: f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        ADVERTISED_LISTENERS.name: f"PLAINTEXT://{HOST}:{node.port}",
        INTER_BROKER_LISTENER_NAME.name: "PLAINTEXT",
        CONTROLLER_LISTENER_NAMES.name: "CONTROLLER",
        CONTROLLER_QUORUM_VOTERS.name: ",".join(f"{each.id}@{HOST}:{each.controller_port}" for each in nodes),
        LOG_DIRS.name: data_dir,
        DEFAULT_REPLICATION_FACTOR.name: replicas,
        OFFSETS_TOPIC_REPLICATION_FACTOR.name: replicas,
        TRANSACTION_STATE_LOG_REPLICATION_FACTOR.name: replicas,
        TRANSACTION_STATE_LOG_MIN_ISR.name: "2" if len(nodes) >= REPLICAS else "1",
        SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR.name: replicas,
        SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR.name: "2" if len(nodes) >= REPLICAS else "1",
        MIN_INSYNC_REPLICAS.name: "2" if len(nodes) >= REPLICAS else "1",
        **FAST_FAILOVER,
        **({METRICS_LISTENER.name: f"{HOST}:{node.metrics_port}"} if node.metrics_port else {}),
    }
