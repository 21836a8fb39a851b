"""The settings of a node about its cluster: the controllers, and the timeouts of the quorum and of replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.listeners import Listener
from moldau.base.setting_sources import SettingsError, Values

REPLICA_SELECTORS: Final = ("LeaderSelector", "RackAwareReplicaSelector")
"""Kafka's class names, which may be set with or without a package."""
PORT_MAX: Final = 65_535


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
    election_timeout_ms: int
    election_backoff_max_ms: int
    fetch_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    fetch_max_bytes: int
    fetch_snapshot_max_bytes: int
    bytes_between_snapshots: int


@dataclass(frozen=True, slots=True)
class BrokerSessionSettings:
    heartbeat_interval_ms: int
    session_timeout_ms: int
    controlled_shutdown_enabled: bool
    """Whether a broker moves its leaderships to other brokers before it stops."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    lag_time_max_ms: int
    fetch_max_bytes: int
    fetch_response_max_bytes: int
    fetch_wait_max_ms: int
    fetch_min_bytes: int
    fetch_backoff_ms: int
    socket_timeout_ms: int
    rack_aware_reads: bool
    """Whether consumers are directed to a replica in their own rack (KIP-392)."""


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    auto_rebalance_enabled: bool
    """Whether the controller moves leaderships back to the preferred replicas at every check."""
    check_interval_ms: int


def read_sessions(values: Values) -> BrokerSessionSettings:
    return BrokerSessionSettings(
        heartbeat_interval_ms=values.integer("broker.heartbeat.interval.ms"),
        session_timeout_ms=values.integer("broker.session.timeout.ms"),
        controlled_shutdown_enabled=values.boolean("controlled.shutdown.enable"),
    )


def read_balance(values: Values) -> BalanceSettings:
    return BalanceSettings(
        auto_rebalance_enabled=values.boolean("auto.leader.rebalance.enable"),
        check_interval_ms=values.integer("leader.imbalance.check.interval.seconds") * 1000,
    )


def read_quorum(values: Values) -> QuorumSettings:
    return QuorumSettings(
        voters=tuple(_parse_voter(values, voter) for voter in values.strings("controller.quorum.voters")),
        bootstrap_servers=tuple(
            _parse_server(values, server) for server in values.strings("controller.quorum.bootstrap.servers")
        ),
        election_timeout_ms=values.integer("controller.quorum.election.timeout.ms"),
        election_backoff_max_ms=values.integer("controller.quorum.election.backoff.max.ms"),
        fetch_timeout_ms=values.integer("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=values.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=values.integer("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=values.integer("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=values.integer("controller.quorum.fetch.snapshot.max.bytes"),
        bytes_between_snapshots=values.integer("metadata.log.max.record.bytes.between.snapshots"),
    )


def _parse_voter(values: Values, voter: str) -> VoterAddress:
    voter_id, separator, address = voter.partition("@")
    host, _, port = address.rpartition(":")
    if not separator or not voter_id.isdecimal() or not host or not _is_port(port):
        raise values.error("controller.quorum.voters", f"{voter!r} is not a voter; expected id@host:port")
    return VoterAddress(int(voter_id), host.strip("[]"), int(port))


def _parse_server(values: Values, server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    if not host or not _is_port(port):
        raise values.error("controller.quorum.bootstrap.servers", f"{server!r} is not an address; expected host:port")
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
    roles = set(values.strings("process.roles"))
    if not roles:
        raise values.error("process.roles", "is empty; expected broker, controller or both")
    voters = [voter.id for voter in quorum.voters]
    if len(set(voters)) < len(voters):
        raise values.error("controller.quorum.voters", "two voters have the same id; expected a different id for each")
    if "broker" in roles and not client_listeners:
        raise values.error(
            "listeners", "a broker needs a listener for clients: one that is not named in controller.listener.names"
        )
    if "controller" in roles:
        if voters and node_id not in voters:
            raise values.error(
                "controller.quorum.voters",
                f"node {node_id} is a controller but not a voter; add {node_id}@host:port or change node.id",
            )
        if not controller_listeners and (len(voters) > 1 or "broker" not in roles):
            raise values.error("listeners", "a controller needs a listener that is named in controller.listener.names")
    else:
        if node_id in voters:
            raise values.error(
                "controller.quorum.voters",
                f"node {node_id} is a voter but not a controller; remove it or add controller to process.roles",
            )
        if not voters and not quorum.bootstrap_servers:
            raise values.error("process.roles", "a broker-only node needs controller.quorum.bootstrap.servers")
        if controller_listeners:
            raise values.error(
                "listeners",
                "a broker-only node must not have a listener named in controller.listener.names: "
                f"remove {_names(controller_listeners)}",
            )
    if roles == {"controller"} and client_listeners:
        raise values.error(
            "listeners",
            "a controller-only node must not have a listener for clients: "
            f"remove {_names(client_listeners)} or add it to controller.listener.names",
        )


def _names(listeners: tuple[Listener, ...]) -> str:
    return ", ".join(listener.name for listener in listeners)


def read_replication(values: Values) -> ReplicationSettings:
    selector = values.text("replica.selector.class")
    if selector is not None and selector.rpartition(".")[2] not in REPLICA_SELECTORS:
        raise values.error(
            "replica.selector.class", f"unknown class {selector!r}; expected one of {', '.join(REPLICA_SELECTORS)}"
        )
    return ReplicationSettings(
        lag_time_max_ms=values.integer("replica.lag.time.max.ms"),
        fetch_max_bytes=values.integer("replica.fetch.max.bytes"),
        fetch_response_max_bytes=values.integer("replica.fetch.response.max.bytes"),
        fetch_wait_max_ms=values.integer("replica.fetch.wait.max.ms"),
        fetch_min_bytes=values.integer("replica.fetch.min.bytes"),
        fetch_backoff_ms=values.integer("replica.fetch.backoff.ms"),
        socket_timeout_ms=values.integer("replica.socket.timeout.ms"),
        rack_aware_reads=selector is not None and selector.endswith("RackAwareReplicaSelector"),
    )


def check_cluster_id(cluster_id: str, origin: str) -> None:
    """Any text is an id, as in Kafka, if it fits into a line of meta.properties."""
    if not cluster_id.isprintable() or cluster_id != cluster_id.strip() or not cluster_id:
        raise SettingsError(f"{origin} {cluster_id}: expected an id such as `kafka-storage random-uuid` prints")
