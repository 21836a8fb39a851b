"""The settings of a node about its cluster: the controllers, and the timeouts of the quorum and of replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.limits import PORT_MAX
from moldau.base.listeners import Listener
from moldau.base.setting_sources import SettingsError, Values
from moldau.base.settings import cluster, node
from moldau.base.settings.fields import read_settings, setting, setting_values, times

REPLICA_SELECTORS: Final = ("LeaderSelector", "RackAwareReplicaSelector")
"""Kafka's class names, which may be set with or without a package."""


class VoterAddress(NamedTuple):
    """An entry of `controller.quorum.voters`."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    voters: tuple[VoterAddress, ...]
    """The static voters. Empty if the voters are dynamic: then the metadata log contains them."""
    bootstrap_servers: tuple[tuple[str, int], ...]
    election_timeout_ms: int = setting(cluster.CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS)
    election_backoff_max_ms: int = setting(cluster.CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS)
    fetch_timeout_ms: int = setting(cluster.CONTROLLER_QUORUM_FETCH_TIMEOUT_MS)
    request_timeout_ms: int = setting(cluster.CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS)
    retry_backoff_ms: int = setting(cluster.CONTROLLER_QUORUM_RETRY_BACKOFF_MS)
    fetch_max_bytes: int = setting(cluster.CONTROLLER_QUORUM_FETCH_MAX_BYTES)
    fetch_snapshot_max_bytes: int = setting(cluster.CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES)
    bytes_between_snapshots: int = setting(cluster.METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS)


@dataclass(frozen=True, slots=True)
class BrokerSessionSettings:
    heartbeat_interval_ms: int = setting(cluster.BROKER_HEARTBEAT_INTERVAL_MS)
    session_timeout_ms: int = setting(cluster.BROKER_SESSION_TIMEOUT_MS)
    controlled_shutdown_enabled: bool = setting(cluster.CONTROLLED_SHUTDOWN_ENABLE)
    """Whether a broker moves its leaderships to other brokers before it stops."""


@dataclass(frozen=True, slots=True)
class ReplicaFetchSettings:
    """With which a follower fetches."""

    wait_max_ms: int = setting(cluster.REPLICA_FETCH_WAIT_MAX_MS)
    min_bytes: int = setting(cluster.REPLICA_FETCH_MIN_BYTES)
    max_bytes: int = setting(cluster.REPLICA_FETCH_MAX_BYTES)
    response_max_bytes: int = setting(cluster.REPLICA_FETCH_RESPONSE_MAX_BYTES)
    backoff_ms: int = setting(cluster.REPLICA_FETCH_BACKOFF_MS)
    timeout_ms: int = setting(cluster.REPLICA_SOCKET_TIMEOUT_MS)
    """How long a response may take."""


def _is_rack_aware(selector: str | None) -> bool:
    return selector is not None and selector.endswith("RackAwareReplicaSelector")


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    fetch: ReplicaFetchSettings
    lag_time_max_ms: int = setting(cluster.REPLICA_LAG_TIME_MAX_MS)
    rack_aware_reads: bool = setting(cluster.REPLICA_SELECTOR_CLASS, _is_rack_aware)
    """Whether consumers are directed to a replica in their own rack (KIP-392)."""


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    auto_rebalance_enabled: bool = setting(cluster.AUTO_LEADER_REBALANCE_ENABLE)
    """Whether the controller moves leaderships back to the preferred replicas at every check."""
    check_interval_ms: int = setting(cluster.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS, times(1000))


def read_quorum(values: Values) -> QuorumSettings:
    return QuorumSettings(
        **setting_values(QuorumSettings, values.value),
        voters=tuple(_parse_voter(values, voter) for voter in values.strings(node.CONTROLLER_QUORUM_VOTERS)),
        bootstrap_servers=tuple(
            _parse_server(values, server) for server in values.strings(node.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS)
        ),
    )


def _parse_voter(values: Values, voter: str) -> VoterAddress:
    voter_id, separator, address = voter.partition("@")
    host, _, port = address.rpartition(":")
    if not separator or not voter_id.isdecimal() or not host or not _is_port(port):
        raise values.error(node.CONTROLLER_QUORUM_VOTERS, f"{voter!r} is not a voter; expected id@host:port")
    return VoterAddress(int(voter_id), host.strip("[]"), int(port))


def _parse_server(values: Values, server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    if not host or not _is_port(port):
        raise values.error(
            node.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS, f"{server!r} is not an address; expected host:port"
        )
    return host.strip("[]"), int(port)


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= 5 and int(text) <= PORT_MAX


def check_roles(
    values: Values,
    node_id: int,
    client_listeners: tuple[Listener, ...],
    controller_listeners: tuple[Listener, ...],
    quorum: QuorumSettings,
) -> None:
    """Raise SettingsError if the listeners or the voters do not fit the roles of this node."""
    roles = set(values.strings(node.PROCESS_ROLES))
    if not roles:
        raise values.error(node.PROCESS_ROLES, "is empty; expected broker, controller or both")
    voters = [voter.id for voter in quorum.voters]
    if len(set(voters)) < len(voters):
        raise values.error(
            node.CONTROLLER_QUORUM_VOTERS, "two voters have the same id; expected a different id for each"
        )
    if "broker" in roles and not client_listeners:
        raise values.error(
            node.LISTENERS, "a broker needs a listener for clients: one that is not named in controller.listener.names"
        )
    if "controller" in roles:
        if voters and node_id not in voters:
            raise values.error(
                node.CONTROLLER_QUORUM_VOTERS,
                f"node {node_id} is a controller but not a voter; add {node_id}@host:port or change node.id",
            )
        if not controller_listeners and (len(voters) > 1 or "broker" not in roles):
            raise values.error(
                node.LISTENERS, "a controller needs a listener that is named in controller.listener.names"
            )
    else:
        if node_id in voters:
            raise values.error(
                node.CONTROLLER_QUORUM_VOTERS,
                f"node {node_id} is a voter but not a controller; remove it or add controller to process.roles",
            )
        if not voters and not quorum.bootstrap_servers:
            raise values.error(node.PROCESS_ROLES, "a broker-only node needs controller.quorum.bootstrap.servers")
        if controller_listeners:
            raise values.error(
                node.LISTENERS,
                "a broker-only node must not have a listener named in controller.listener.names: "
                f"remove {_names(controller_listeners)}",
            )
    if roles == {"controller"} and client_listeners:
        raise values.error(
            node.LISTENERS,
            "a controller-only node must not have a listener for clients: "
            f"remove {_names(client_listeners)} or add it to controller.listener.names",
        )


def _names(listeners: tuple[Listener, ...]) -> str:
    return ", ".join(listener.name for listener in listeners)


def read_replication(values: Values) -> ReplicationSettings:
    selector = values.text(cluster.REPLICA_SELECTOR_CLASS)
    if selector is not None and selector.rpartition(".")[2] not in REPLICA_SELECTORS:
        raise values.error(
            cluster.REPLICA_SELECTOR_CLASS,
            f"unknown class {selector!r}; expected one of {', '.join(REPLICA_SELECTORS)}",
        )
    fetch = read_settings(ReplicaFetchSettings, values.value)
    return ReplicationSettings(**setting_values(ReplicationSettings, values.value), fetch=fetch)


def check_cluster_id(cluster_id: str, origin: str) -> None:
    """Any text is an id, as in Kafka, if it fits into a line of meta.properties."""
    if not cluster_id.isprintable() or cluster_id != cluster_id.strip() or not cluster_id:
        raise SettingsError(f"{origin} {cluster_id}: expected an id such as `kafka-storage random-uuid` prints")
