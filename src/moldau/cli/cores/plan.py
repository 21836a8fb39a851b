"""The nodes of `moldau start --cores`: their ids, ports, racks and settings. Pure: values in, values out.

All nodes of a machine share one port for the first connection of a client, the listener BOOTSTRAP. It advertises the
node's own port, so whichever node a client reaches there, it is told the right address of each node. Node 1 is also the
controller. If machines are joined, the first node of each of the first three is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.base.limits import PORT_MAX
from moldau.base.setting_sources import SettingsError, SettingText
from moldau.base.settings.cluster import BROKER_HEARTBEAT_INTERVAL_MS, BROKER_SESSION_TIMEOUT_MS
from moldau.base.settings.groups import OFFSETS_TOPIC_REPLICATION_FACTOR
from moldau.base.settings.log import DEFAULT_REPLICATION_FACTOR, LOG_DIR, LOG_DIRS, MIN_INSYNC_REPLICAS
from moldau.base.settings.node import (
    ADVERTISED_LISTENERS,
    BROKER_ID,
    BROKER_RACK,
    CONTROLLER_LISTENER_NAMES,
    CONTROLLER_QUORUM_BOOTSTRAP_SERVERS,
    CONTROLLER_QUORUM_VOTERS,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    NODE_ID,
    PROCESS_ROLES,
    SECURITY_INTER_BROKER_PROTOCOL,
)
from moldau.base.settings.security import AUTHORIZER_CLASS_NAME
from moldau.base.settings.share_coordinator import (
    SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR,
    SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR,
)
from moldau.base.settings.transactions import TRANSACTION_STATE_LOG_MIN_ISR, TRANSACTION_STATE_LOG_REPLICATION_FACTOR
from moldau.local_cluster import BOOTSTRAP_LISTENER, FAST_FAILOVER, HOST, REPLICAS, NodeAddress
from moldau.secure_setup.settings import (
    CLIENTS_LISTENER,
    CONTROLLER_LISTENER,
    NODES_LISTENER,
    bracketed,
    secured_properties,
)

IDS_PER_MACHINE: Final = 100
CONTROLLER_PORT_ABOVE: Final = 1000
INTERNAL_PORTS_ABOVE: Final = 2000
DEFAULT_PORT: Final = 9092
PLAINTEXT: Final = "PLAINTEXT"
ONE_MACHINE: Final = "machine-1"
"""The rack of a machine that is alone."""

ONE_MACHINE_TIMEOUTS: Final = FAST_FAILOVER | {
    BROKER_HEARTBEAT_INTERVAL_MS.name: "500",
    BROKER_SESSION_TIMEOUT_MS.name: "3000",
}
"""A killed node can register again when its session has timed out. With one replica of each partition, a node that is
fenced by mistake cannot be replaced: so the timeouts are longer than those of `moldau cluster start`."""

OTHER_FIXED: Final = frozenset(
    (
        BROKER_ID.name,
        LOG_DIR.name,
        SECURITY_INTER_BROKER_PROTOCOL.name,
        CONTROLLER_QUORUM_BOOTSTRAP_SERVERS.name,
        AUTHORIZER_CLASS_NAME.name,
    )
)
"""Settings that contradict the plan even though it does not set them, or that take back what --secure promises."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as --machines names it."""

    host: str
    port: int

    @property
    def name(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class CoresPlan:
    """What the options say."""

    cores: int
    listen_host: str
    port: int
    """The port that all nodes share; each has one of its own above it."""
    advertised_host: str
    is_secure: bool = False
    machines: tuple[Machine, ...] = ()
    """All machines of the cluster in the same order everywhere; empty if this one is alone."""

    @property
    def machine_index(self) -> int:
        own = Machine(self.advertised_host, self.port)
        if not self.machines:
            return 0
        if own not in self.machines:
            names = ",".join(each.name for each in self.machines)
            raise SettingsError(
                f"--machines {names}: this machine ({own.name}) is not one of them; name it as clients and the other"
                " machines reach it, by --advertise HOST or --listen HOST:PORT"
            )
        return self.machines.index(own)

    @property
    def rack(self) -> str:
        return self.machines[self.machine_index].name if self.machines else ONE_MACHINE

    @property
    def node_ids(self) -> range:
        first = self.machine_index * IDS_PER_MACHINE + 1
        return range(first, first + self.cores)

    @property
    def ports(self) -> range:
        ports = range(self.port + 1, self.port + 1 + self.cores)
        if not 1 <= self.port <= PORT_MAX - INTERNAL_PORTS_ABOVE - self.cores:
            raise SettingsError(
                f"port {self.port}: --cores {self.cores} needs a port for each node, and more"
                f" {CONTROLLER_PORT_ABOVE} and {INTERNAL_PORTS_ABOVE} above them; choose another: --listen HOST:PORT"
            )
        return ports

    @property
    def voters(self) -> dict[int, Machine]:
        """The machines whose first node is a controller, by its id. Two machines have one: the loss of either of two
        voters would stop the quorum anyway."""
        voters = self.machines[:REPLICAS] if len(self.machines) >= REPLICAS else self.machines[:1]
        return {index * IDS_PER_MACHINE + 1: machine for index, machine in enumerate(voters)}


def parse_machines(text: str) -> tuple[Machine, ...]:
    """Parse HOST[:PORT],HOST[:PORT],… of --machines."""
    machines = []
    for item in filter(None, (each.strip() for each in text.split(","))):
        found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?", item)
        if not found:
            raise SettingsError(f"--machines {text}: {item!r} is not HOST or HOST:PORT")
        machines.append(Machine(found[1] or found[2], int(found[3] or DEFAULT_PORT)))
    if len(machines) < 2 or len(set(machines)) < len(machines):
        raise SettingsError(f"--machines {text}: expected two or more different machines, this one too")
    return tuple(machines)


def plan_nodes(plan: CoresPlan, controller_port: int, internal_ports: Sequence[int]) -> tuple[NodeAddress, ...]:
    """Return the nodes of this machine. `controller_port` is 0 if none of them is a controller."""
    return tuple(
        NodeAddress(
            node_id, port, controller_port if number == 0 else 0, internal_ports[number], host=plan.advertised_host
        )
        for number, (node_id, port) in enumerate(zip(plan.node_ids, plan.ports, strict=True))
    )


def node_settings(
    plan: CoresPlan,
    node: NodeAddress,
    nodes: Sequence[NodeAddress],
    data_dir: str,
    user: Mapping[str, SettingText],
    stores: tuple[str, str] | None = None,
    token_key: str = "",
) -> dict[str, str]:
    """Return the server.properties of one node. `user` are the settings from files, variables and options: they
    override defaults, but must not set what the plan sets. `stores` are the key and trust store of a secured
    machine."""
    fixed, first = _fixed(plan, node, nodes, data_dir), _fixed(plan, nodes[0], nodes, data_dir)
    for key, setting in user.items():
        # The file of a single node may stay as it is: its id and roles are those of the first node.
        if key in OTHER_FIXED or setting.text != first.get(key, setting.text):
            raise SettingsError(
                f"{setting.origin}: {key}: --cores sets this for each node; remove it, or start each node with a"
                " server.properties of its own (docs/cluster.md)"
            )
    secured = secured_properties(*stores, token_key) if stores is not None else {}
    return {**_defaults(plan), **secured, **{key: each.text for key, each in user.items()}, **fixed}


def _defaults(plan: CoresPlan) -> dict[str, str]:
    """One machine has one replica of everything, as a single node has: a second one would be lost with the first."""
    replicas, in_sync = str(min(max(len(plan.machines), 1), REPLICAS)), "2" if len(plan.machines) >= REPLICAS else "1"
    return {
        DEFAULT_REPLICATION_FACTOR.name: replicas,
        OFFSETS_TOPIC_REPLICATION_FACTOR.name: replicas,
        TRANSACTION_STATE_LOG_REPLICATION_FACTOR.name: replicas,
        TRANSACTION_STATE_LOG_MIN_ISR.name: in_sync,
        SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR.name: replicas,
        SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR.name: in_sync,
        MIN_INSYNC_REPLICAS.name: in_sync,
        **({} if plan.machines else ONE_MACHINE_TIMEOUTS),
    }


def _fixed(plan: CoresPlan, node: NodeAddress, nodes: Sequence[NodeAddress], data_dir: str) -> dict[str, str]:
    clients = CLIENTS_LISTENER if plan.is_secure else PLAINTEXT
    among_nodes = "SSL" if plan.is_secure else PLAINTEXT
    listen, own = bracketed(plan.listen_host), f"{bracketed(plan.advertised_host)}:{node.port}"
    listeners = {clients: f"{listen}:{node.port}", BOOTSTRAP_LISTENER: f"{listen}:{plan.port}"}
    advertised = {clients: own, BOOTSTRAP_LISTENER: own}
    protocols = {clients: clients, BOOTSTRAP_LISTENER: clients}
    if node.internal_port:
        listeners[NODES_LISTENER] = advertised[NODES_LISTENER] = f"{HOST}:{node.internal_port}"
        protocols[NODES_LISTENER] = among_nodes
    if node.controller_port:
        listeners[CONTROLLER_LISTENER] = f"{listen if plan.machines else HOST}:{node.controller_port}"
    protocols[CONTROLLER_LISTENER] = among_nodes
    fixed = {
        PROCESS_ROLES.name: node.roles,
        NODE_ID.name: str(node.id),
        BROKER_RACK.name: plan.rack,
        LISTENERS.name: _joined(listeners, "://"),
        ADVERTISED_LISTENERS.name: _joined(advertised, "://"),
        LISTENER_SECURITY_PROTOCOL_MAP.name: _joined(protocols, ":"),
        INTER_BROKER_LISTENER_NAME.name: NODES_LISTENER if node.internal_port else clients,
        CONTROLLER_LISTENER_NAMES.name: CONTROLLER_LISTENER,
        CONTROLLER_QUORUM_VOTERS.name: _voters(plan, nodes),
        LOG_DIRS.name: data_dir,
    }
    if plan.is_secure:
        for name in (NODES_LISTENER, CONTROLLER_LISTENER):
            fixed[f"listener.name.{name.lower()}.ssl.client.auth"] = "required"
    return fixed


def _voters(plan: CoresPlan, nodes: Sequence[NodeAddress]) -> str:
    if not plan.machines:
        return f"{nodes[0].id}@{HOST}:{nodes[0].controller_port}"
    return ",".join(
        f"{node_id}@{bracketed(machine.host)}:{machine.port + CONTROLLER_PORT_ABOVE}"
        for node_id, machine in plan.voters.items()
    )


def _joined(entries: Mapping[str, str], separator: str) -> str:
    return ",".join(f"{name}{separator}{value}" for name, value in entries.items())
