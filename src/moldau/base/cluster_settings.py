"""The settings of a node about its cluster: the controllers, and the timeouts of the quorum and of replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.listeners import Listener
from moldau.base.setting_sources import Values

REPLICA_SELECTORS: Final = ("LeaderSelector", "RackAwareReplicaSelector")


class VoterAddress(NamedTuple):
    """An entry of `controller.quorum.voters`."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    voters: tuple[VoterAddress, ...]
    """The static voters; empty if the metadata log contains the voters."""
    bootstrap_servers: tuple[tuple[str, int], ...]
    election_timeout_ms: int
    election_backoff_max_ms: int
    fetch_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    fetch_bytes_max: int
    snapshot_fetch_bytes_max: int
    bytes_between_snapshots: int


@dataclass(frozen=True, slots=True)
class BrokerSessionSettings:
    heartbeat_interval_ms: int
    session_timeout_ms: int
    is_shutdown_controlled: bool
    """Whether a broker moves its leaderships to others before it stops."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    lag_time_max_ms: int
    fetch_bytes_max: int
    fetch_response_bytes_max: int
    fetch_wait_max_ms: int
    fetch_min_bytes: int
    fetch_backoff_ms: int
    socket_timeout_ms: int
    reads_from_nearest: bool
    """Whether consumers are directed to a replica in their own rack (KIP-392)."""


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    is_automatic: bool
    """Whether leaderships return to the preferred replicas automatically."""
    check_interval_ms: int


def read_sessions(values: Values) -> BrokerSessionSettings:
    return BrokerSessionSettings(
        heartbeat_interval_ms=values.integer("broker.heartbeat.interval.ms"),
        session_timeout_ms=values.integer("broker.session.timeout.ms"),
        is_shutdown_controlled=values.boolean("controlled.shutdown.enable"),
    )


def read_balance(values: Values) -> BalanceSettings:
    return BalanceSettings(
        is_automatic=values.boolean("auto.leader.rebalance.enable"),
        check_interval_ms=values.integer("leader.imbalance.check.interval.seconds") * 1000,
    )


def read_quorum(values: Values) -> QuorumSettings:
    return QuorumSettings(
        voters=tuple(_parse_voter(values, text) for text in values.items("controller.quorum.voters")),
        bootstrap_servers=tuple(
            _parse_server(values, text) for text in values.items("controller.quorum.bootstrap.servers")
        ),
        election_timeout_ms=values.integer("controller.quorum.election.timeout.ms"),
        election_backoff_max_ms=values.integer("controller.quorum.election.backoff.max.ms"),
        fetch_timeout_ms=values.integer("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=values.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=values.integer("controller.quorum.retry.backoff.ms"),
        fetch_bytes_max=values.integer("controller.quorum.fetch.max.bytes"),
        snapshot_fetch_bytes_max=values.integer("controller.quorum.fetch.snapshot.max.bytes"),
        bytes_between_snapshots=values.integer("metadata.log.max.record.bytes.between.snapshots"),
    )


def _parse_voter(values: Values, text: str) -> VoterAddress:
    voter_id, at, address = text.partition("@")
    host, _, port = address.rpartition(":")
    if not at or not voter_id.isdecimal() or not host or not port.isdecimal():
        raise values.refusal("controller.quorum.voters", f"{text!r} is not a voter; expected id@host:port")
    return VoterAddress(int(voter_id), host.strip("[]"), int(port))


def _parse_server(values: Values, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise values.refusal("controller.quorum.bootstrap.servers", f"{text!r} is not an address; expected host:port")
    return host.strip("[]"), int(port)


def check_roles(
    values: Values,
    node_id: int,
    client_listeners: tuple[Listener, ...],
    controller_listeners: tuple[Listener, ...],
    quorum: QuorumSettings,
) -> None:
    """Check the listeners and voters of each role, with Kafka's rules."""
    roles = set(values.items("process.roles"))
    if not roles:
        raise values.refusal("process.roles", "expected broker, controller or both")
    voters = [voter.id for voter in quorum.voters]
    if len(set(voters)) < len(voters):
        raise values.refusal("controller.quorum.voters", "expected a different id for each voter")
    if "broker" in roles and not client_listeners:
        raise values.refusal("listeners", "expected a listener for clients besides those of controllers")
    if "controller" in roles:
        if voters and node_id not in voters:
            raise values.refusal("controller.quorum.voters", f"this controller, node {node_id}, is not one of them")
        if not controller_listeners and (len(voters) > 1 or "broker" not in roles):
            raise values.refusal("listeners", "expected a listener of controller.listener.names for a controller")
    else:
        if node_id in voters:
            raise values.refusal("controller.quorum.voters", f"node {node_id} is a voter but no controller")
        if not voters and not quorum.bootstrap_servers:
            raise values.refusal("process.roles", "a broker alone needs controller.quorum.bootstrap.servers")
        if controller_listeners:
            raise values.refusal("listeners", "a broker alone has no listener of controller.listener.names")
    if roles == {"controller"} and client_listeners:
        raise values.refusal("listeners", "a controller alone has no listener for clients")


def read_replication(values: Values) -> ReplicationSettings:
    selector = values.text("replica.selector.class")
    if selector is not None and selector.rpartition(".")[2] not in REPLICA_SELECTORS:
        raise values.refusal("replica.selector.class", f"expected one of {', '.join(REPLICA_SELECTORS)}")
    return ReplicationSettings(
        lag_time_max_ms=values.integer("replica.lag.time.max.ms"),
        fetch_bytes_max=values.integer("replica.fetch.max.bytes"),
        fetch_response_bytes_max=values.integer("replica.fetch.response.max.bytes"),
        fetch_wait_max_ms=values.integer("replica.fetch.wait.max.ms"),
        fetch_min_bytes=values.integer("replica.fetch.min.bytes"),
        fetch_backoff_ms=values.integer("replica.fetch.backoff.ms"),
        socket_timeout_ms=values.integer("replica.socket.timeout.ms"),
        reads_from_nearest=selector is not None and selector.endswith("RackAwareReplicaSelector"),
    )
