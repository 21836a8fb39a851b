"""The directory of a cluster on this machine: what `moldau cluster` keeps in it, and which ports its nodes have.

    <dir>/cluster.json              JSON: the cluster's id, its nodes with their ports, overrides of the last start
    <dir>/foreground.json           the process of `moldau cluster start`, while it runs
    <dir>/node-N/server.properties  written once, with Kafka's names; edit it as you like
    <dir>/node-N/process.json       the node's last process, and where its lines in the log begin
    <dir>/node-N/server.log         what the node says, of all its runs
    <dir>/node-N/restart            made by `moldau cluster restart`: seen by the foreground, which starts the node anew
    <dir>/node-N/data/              log.dirs

Files that others read are written aside and renamed. Nothing here starts or ends a process.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from moldau.base.ids import uuid_text
from moldau.base.local_cluster import HOST, NodeAddress, node_properties
from moldau.cli.connect import CommandFailed

DEFAULT_DIRECTORY: Final = "moldau-data-cluster"
DEFAULT_NODES: Final = 3
DEFAULT_BASE_PORT: Final = 9092
CONTROLLER_PORTS_ABOVE: Final = 1000
PORT_MAX: Final = 65_535
DESCRIPTION: Final = "cluster.json"
FOREGROUND: Final = "foreground.json"


@dataclass(frozen=True, slots=True)
class Description:
    cluster_id: str
    nodes: tuple[NodeAddress, ...]
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that say how the nodes write their log lines; those of the last start, like the overrides."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def node(self, node_id: int) -> NodeAddress:
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise CommandFailed(f"there is no node {node_id} in this cluster; its nodes are {ids}")


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    path: Path

    def node_path(self, node_id: int) -> Path:
        return self.path / f"node-{node_id}"

    def properties_path(self, node_id: int) -> Path:
        return self.node_path(node_id) / "server.properties"

    def log_path(self, node_id: int) -> Path:
        return self.node_path(node_id) / "server.log"

    def process_path(self, node_id: int) -> Path:
        return self.node_path(node_id) / "process.json"

    def restart_path(self, node_id: int) -> Path:
        return self.node_path(node_id) / "restart"

    @property
    def foreground_path(self) -> Path:
        return self.path / FOREGROUND

    def description(self) -> Description:
        """What the directory holds; CommandFailed if it holds no cluster."""
        found = self._read_description()
        if found is None:
            raise CommandFailed(
                f"there is no cluster in {self.path}; `moldau cluster start` makes one, --data-dir names another place"
            )
        return found

    def _read_description(self) -> Description | None:
        said = read_json(self.path / DESCRIPTION)
        if said is None:
            return None
        try:
            nodes = tuple(NodeAddress(**node) for node in said["nodes"])
            return Description(
                str(said["cluster_id"]), nodes, dict(said["overrides"]), dict(said.get("log_variables", {}))
            )
        except (KeyError, TypeError, ValueError) as bad:
            raise CommandFailed(
                f"{self.path / DESCRIPTION} cannot be understood ({bad}); choose another --data-dir"
            ) from bad

    def plan(
        self,
        nodes: int | None,
        base_port: int | None,
        overrides: Mapping[str, str],
        new_id: bytes,
        log_variables: Mapping[str, str] | None = None,
    ) -> Description:
        """The cluster that is to be started: the one in the directory, or a new one. Nothing is written yet."""
        found = self._read_description()
        if found is None:
            self._refuse_what_is_not_ours()
            found = _new_description(nodes or DEFAULT_NODES, base_port or DEFAULT_BASE_PORT, uuid_text(new_id))
        else:
            _refuse_another_shape(self.path, found, nodes, base_port)
        return Description(found.cluster_id, found.nodes, dict(overrides), dict(log_variables or {}))

    def lay_out(self, description: Description) -> None:
        for node in description.nodes:
            self.node_path(node.id).mkdir(parents=True, exist_ok=True)
            properties = self.properties_path(node.id)
            if not properties.exists():
                write_text(properties, properties_text(description, node, self.node_path(node.id) / "data"))
        write_json(self.path / DESCRIPTION, asdict(description))

    def _refuse_what_is_not_ours(self) -> None:
        if "," in str(self.path.absolute()):
            raise CommandFailed(f"{self.path.absolute()} has a comma in it, which log.dirs takes for two directories")
        if self.path.is_file():
            raise CommandFailed(f"{self.path} is a file; choose another --data-dir")
        if self.path.is_dir() and any(self.path.iterdir()):
            raise CommandFailed(
                f"{self.path} is not empty and holds no cluster of `moldau cluster start`; choose another --data-dir"
            )


def _refuse_another_shape(path: Path, found: Description, nodes: int | None, base_port: int | None) -> None:
    if nodes not in (None, len(found.nodes)):
        raise CommandFailed(
            f"{path} holds a cluster of {len(found.nodes)} nodes; leave --nodes out, or choose another --data-dir"
        )
    if base_port not in (None, found.nodes[0].port):
        raise CommandFailed(
            f"the cluster in {path} has its ports from {found.nodes[0].port} on; leave --base-port out,"
            " or choose another --data-dir"
        )


def _new_description(count: int, base_port: int, cluster_id: str) -> Description:
    ports = range(base_port, base_port + count)
    if ports[-1] > PORT_MAX:
        raise CommandFailed(f"--base-port {base_port} leaves no room for {count} ports; the last is {PORT_MAX}")
    controller_ports = _controller_ports([port + CONTROLLER_PORTS_ABOVE for port in ports], taken=set(ports))
    nodes = (NodeAddress(1 + index, port, controller_ports[index]) for index, port in enumerate(ports))
    return Description(cluster_id, tuple(nodes))


def _controller_ports(wished: Sequence[int], taken: set[int]) -> list[int]:
    """The ports wished for where they are free, else the next that are. Not any that the system would give: those it
    also gives to connections, and a node that restarts must find its port free."""
    found: list[int] = []
    for port in wished:
        candidates = (each for each in range(port, PORT_MAX + 1) if each not in taken)
        free = next((each for each in candidates if is_free(each)), None)
        if free is None:
            raise CommandFailed(f"no port above {port} is free for a controller; choose a lower --base-port")
        taken.add(free)
        found.append(free)
    return found


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
            sock.listen(1)  # with SO_REUSEADDR two may bind, but only one may listen
        except OSError:
            return False
        return True


def refuse_busy_ports(description: Description) -> None:
    for node in description.nodes:
        for port in (node.port, node.controller_port):
            if not is_free(port):
                raise CommandFailed(
                    f"port {port}, which node {node.id} needs, is in use; stop what listens there,"
                    " or start a new cluster elsewhere: --data-dir DIR --base-port PORT"
                )


def properties_text(description: Description, node: NodeAddress, data: Path) -> str:
    """The server.properties of one node. A backslash in a path would mean something else there."""
    said = node_properties(node, description.nodes, str(data.absolute()))
    return "".join(f"{key}={value}\n" for key, value in said.items()).replace("\\", "\\\\")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file, None if there is no such file or it is no object."""
    try:
        said = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def write_json(path: Path, said: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(said, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Aside first, then renamed: whoever reads sees the old text or the new one."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    aside.write_text(text)
    aside.replace(path)


def remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
