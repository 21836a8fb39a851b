"""The directory of a cluster on this machine: its files, and the ports of its nodes.

    <dir>/cluster.json              JSON: the cluster's id, its nodes with their ports, overrides of the last start
    <dir>/foreground.json           the foreground: the process of `moldau cluster start`, while it runs
    <dir>/node-N/server.properties  written once, with Kafka's names; edit it as you like
    <dir>/node-N/process.json       the node's last process, and where its lines in the log begin
    <dir>/node-N/server.log         the output of the node, of all its runs
    <dir>/node-N/restart            created by `moldau cluster restart`: the foreground sees it and restarts the node
    <dir>/node-N/data/              log.dirs

Files that other processes read are written to a temporary file and renamed. This module starts and ends no process.
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
from moldau.cli.connect import CommandFailed
from moldau.local_cluster import HOST, NodeAddress, node_properties

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
    """Environment variables that set the nodes' log output; those of the last start, like the overrides."""

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
        """Return the cluster in the directory; raise CommandFailed if the directory has none."""
        description = self._read_description()
        if description is None:
            raise CommandFailed(
                f"there is no cluster in {self.path}; `moldau cluster start` makes one, --data-dir names another place"
            )
        return description

    def _read_description(self) -> Description | None:
        content = read_json(self.path / DESCRIPTION)
        if content is None:
            return None
        try:
            nodes = tuple(NodeAddress(**node) for node in content["nodes"])
            return Description(
                str(content["cluster_id"]), nodes, dict(content["overrides"]), dict(content.get("log_variables", {}))
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CommandFailed(
                f"{self.path / DESCRIPTION} is not a valid cluster description ({error}); choose another --data-dir"
            ) from error

    def plan(
        self,
        nodes: int | None,
        base_port: int | None,
        overrides: Mapping[str, str],
        new_id: bytes,
        log_variables: Mapping[str, str] | None = None,
    ) -> Description:
        """Return the cluster to start: the one in the directory, or a new one. Write nothing yet."""
        description = self._read_description()
        if description is None:
            self._check_no_foreign_content()
            description = _new_description(nodes or DEFAULT_NODES, base_port or DEFAULT_BASE_PORT, uuid_text(new_id))
        else:
            _check_same_nodes_and_ports(self.path, description, nodes, base_port)
        return Description(description.cluster_id, description.nodes, dict(overrides), dict(log_variables or {}))

    def lay_out(self, description: Description) -> None:
        """Write the files of the cluster. A server.properties that exists is kept: the user may have edited it."""
        for node in description.nodes:
            self.node_path(node.id).mkdir(parents=True, exist_ok=True)
            properties = self.properties_path(node.id)
            if not properties.exists():
                write_text(properties, properties_text(description, node, self.node_path(node.id) / "data"))
        write_json(self.path / DESCRIPTION, asdict(description))

    def _check_no_foreign_content(self) -> None:
        """Fail if a new cluster cannot be created in this directory."""
        if "," in str(self.path.absolute()):
            raise CommandFailed(
                f"{self.path.absolute()} contains a comma, which separates directories in log.dirs;"
                " choose another --data-dir"
            )
        if self.path.is_file():
            raise CommandFailed(f"{self.path} is a file; choose another --data-dir")
        if self.path.is_dir() and any(self.path.iterdir()):
            raise CommandFailed(
                f"{self.path} is not empty and holds no cluster of `moldau cluster start`; choose another --data-dir"
            )


def _check_same_nodes_and_ports(path: Path, description: Description, nodes: int | None, base_port: int | None) -> None:
    if nodes not in (None, len(description.nodes)):
        raise CommandFailed(
            f"{path} holds a cluster of {len(description.nodes)} nodes; leave --nodes out, or choose another --data-dir"
        )
    if base_port not in (None, description.nodes[0].port):
        raise CommandFailed(
            f"the cluster in {path} has its ports from {description.nodes[0].port} on; leave --base-port out,"
            " or choose another --data-dir"
        )


def _new_description(count: int, base_port: int, cluster_id: str) -> Description:
    ports = range(base_port, base_port + count)
    if ports[-1] > PORT_MAX:
        raise CommandFailed(f"--base-port {base_port} leaves no room for {count} ports; the last is {PORT_MAX}")
    controller_ports = _controller_ports([port + CONTROLLER_PORTS_ABOVE for port in ports], used_ports=set(ports))
    nodes = (NodeAddress(1 + index, port, controller_ports[index]) for index, port in enumerate(ports))
    return Description(cluster_id, tuple(nodes))


def _controller_ports(preferred: Sequence[int], used_ports: set[int]) -> list[int]:
    """Return the preferred ports, or for each that is not free the next free one. Not ephemeral ports: the system also
    uses those for connections, and a node that restarts must find its port free."""
    ports: list[int] = []
    for port in preferred:
        candidates = (candidate for candidate in range(port, PORT_MAX + 1) if candidate not in used_ports)
        free_port = next((candidate for candidate in candidates if is_free(candidate)), None)
        if free_port is None:
            raise CommandFailed(f"no port above {port} is free for a controller; choose a lower --base-port")
        used_ports.add(free_port)
        ports.append(free_port)
    return ports


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
            sock.listen(1)  # With SO_REUSEADDR two sockets can bind a port, but only one can listen on it.
        except OSError:
            return False
        return True


def check_ports_are_free(description: Description) -> None:
    for node in description.nodes:
        for port in (node.port, node.controller_port):
            if not is_free(port):
                raise CommandFailed(
                    f"port {port}, which node {node.id} needs, is in use; stop what listens there,"
                    " or start a new cluster elsewhere: --data-dir DIR --base-port PORT"
                )


def properties_text(description: Description, node: NodeAddress, data: Path) -> str:
    """Return the server.properties of one node, with backslashes escaped."""
    properties = node_properties(node, description.nodes, str(data.absolute()))
    return "".join(f"{key}={value}\n" for key, value in properties.items()).replace("\\", "\\\\")


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file. Return None if the file does not exist or contains no object."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a temporary file and rename it, so that readers see the old text or the new one."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
