"""The directory of a cluster on this machine: its files, and the ports of its nodes.

    <dir>/cluster.json              JSON: the cluster's id, its nodes with their ports, overrides of the last start
    <dir>/foreground.json           the foreground: the process of `moldau cluster start`, while it runs
    <dir>/node-N/server.properties  written once, with Kafka's names; edit it as you like
    <dir>/node-N/process.json       the node's last process, and where its lines in the log begin
    <dir>/node-N/server.log         the output of the node, of all its runs
    <dir>/node-N/restart            created by `moldau cluster restart`: the foreground sees it and restarts the node
    <dir>/node-N/data/              log.dirs
    <dir>/authority.pem, …          with --secure: keys, certificates and client.properties (moldau.secure_setup)

Files that other processes read are written to a temporary file and renamed. This module starts and ends no process.
"""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moldau.base.ids import uuid_text
from moldau.base.limits import PORT_MAX
from moldau.base.listeners import WILDCARD_HOSTS
from moldau.base.secure_files import CLIENT
from moldau.cli.connect import CommandFailed
from moldau.local_cluster import HOST, NodeAddress, node_properties
from moldau.platforms.addresses import bind_address
from moldau.platforms.replaced_files import replace_file

if TYPE_CHECKING:
    from moldau.cli.cluster.addresses import ClientHosts

DEFAULT_DIRECTORY: Final = "moldau-data-cluster"
DEFAULT_NODES: Final = 3
DEFAULT_BASE_PORT: Final = 9092
CONTROLLER_PORTS_ABOVE: Final = 1000
INTERNAL_PORTS_ABOVE: Final = 2000
"""Where the brokers of a secured cluster reach each other."""
METRICS_PORTS_ABOVE: Final = 3000
ALL_INTERFACES: Final = "0.0.0.0"
DESCRIPTION: Final = "cluster.json"
FOREGROUND: Final = "foreground.json"


@dataclass(frozen=True, slots=True)
class Description:
    cluster_id: str
    nodes: tuple[NodeAddress, ...]
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that set the nodes' log output; those of the last start, like the overrides."""
    is_secure: bool = False
    shared_port: int = 0
    """The port that all nodes share, of a broker that `moldau start --cores` runs; 0 for any other cluster."""
    machines: tuple[str, ...] = ()
    """All machines of the cluster, if `moldau start --cores` joins several."""

    @property
    def bootstrap_servers(self) -> str:
        if self.shared_port:
            return replace(self.nodes[0], port=self.shared_port).address
        return ",".join(node.address for node in self.nodes)

    @property
    def start_command(self) -> str:
        return f"moldau start --cores {len(self.nodes)}" if self.shared_port else "moldau cluster start"

    @property
    def used_ports(self) -> dict[int, str]:
        """Every port that the nodes listen on, and who needs it."""
        ports = {self.shared_port: "the broker"} if self.shared_port else {}
        for node in self.nodes:
            ports |= dict.fromkeys(
                (node.port, node.controller_port, node.internal_port, node.metrics_port), f"node {node.id}"
            )
        return {port: user for port, user in ports.items() if port}

    def node(self, node_id: int) -> NodeAddress:
        for node in self.nodes:
            if node.id == node_id:
                return node
        ids = ", ".join(str(node.id) for node in self.nodes)
        raise CommandFailed(f"there is no node {node_id} in this cluster; its nodes are {ids}")


@dataclass(frozen=True, slots=True)
class Security:
    """The options of a cluster that is started with --secure."""

    listen: str | None = None
    """The interface for clients; all of them if None."""
    advertise: str | None = None
    names: tuple[str, ...] = ()
    """Further names of this machine, for the certificate."""

    def hosts(self) -> list[str]:
        hosts = (self.listen, self.advertise, *self.names)
        return [host for host in hosts if host is not None and host not in WILDCARD_HOSTS]


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

    def data_path(self, node_id: int) -> Path:
        return self.node_path(node_id) / "data"

    @property
    def client_file(self) -> Path:
        """The client properties of the admin user of a secured cluster."""
        return self.path / CLIENT

    @property
    def foreground_path(self) -> Path:
        return self.path / FOREGROUND

    def description(self) -> Description:
        """Return the cluster in the directory; raise CommandFailed if the directory has none."""
        description = self.read_description()
        if description is None:
            raise CommandFailed(
                f"there is no cluster in {self.path}; `moldau cluster start` makes one, --data-dir names another place"
            )
        return description

    def read_description(self) -> Description | None:
        """Return the cluster in the directory; None if there is none."""
        content = read_json(self.path / DESCRIPTION)
        if content is None:
            return None
        try:
            nodes = tuple(NodeAddress(**node) for node in content["nodes"])
            if not nodes:
                raise ValueError("it has no nodes")
            return Description(
                str(content["cluster_id"]),
                nodes,
                dict(content["overrides"]),
                dict(content.get("log_variables", {})),
                bool(content.get("is_secure", False)),
                int(content.get("shared_port", 0)),
                tuple(map(str, content.get("machines", ()))),
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
        security: Security | None = None,
    ) -> Description:
        """Return the cluster to start: the one in the directory, or a new one. Write nothing yet."""
        description = self.read_description()
        is_secure = security is not None
        if description is None:
            self._check_no_foreign_content()
            count, port = nodes or DEFAULT_NODES, base_port or DEFAULT_BASE_PORT
            description = _new_description(count, port, uuid_text(new_id), is_secure)
        else:
            if description.shared_port:
                raise CommandFailed(f"{self.path} is the data of `{description.start_command}`; start it with that")
            _check_same_nodes_and_ports(self.path, description, nodes, base_port)
            _check_same_security(self, description, security)
        return Description(
            description.cluster_id, description.nodes, dict(overrides), dict(log_variables or {}), is_secure
        )

    def lay_out(self, description: Description, security: Security | None = None) -> str | None:
        """Write the files of the cluster; return the password of the admin user if one was made. A server.properties
        that exists is kept: the user may have edited it."""
        password = self.secure(description, security) if security is not None else None
        for node in description.nodes:
            self.node_path(node.id).mkdir(parents=True, exist_ok=True)
            properties = self.properties_path(node.id)
            if not properties.exists():
                self._write_properties(description, node, security)
        self.save(description)
        return password

    def client_hosts(self, description: Description, node: NodeAddress) -> ClientHosts | None:
        from moldau.cli.cluster.addresses import client_hosts

        return client_hosts(self.properties_path(node.id), description.overrides)

    def with_advertised_hosts(self, description: Description) -> Description:
        """Return the cluster with the hosts that its clients connect to."""
        found = [(node, self.client_hosts(description, node)) for node in description.nodes]
        nodes = (replace(node, host=hosts.advertised) if hosts else node for node, hosts in found)
        return replace(description, nodes=tuple(nodes))

    def save(self, description: Description) -> None:
        replace_file(self.path / DESCRIPTION, json.dumps(asdict(description), indent=2) + "\n")

    def _write_properties(self, description: Description, node: NodeAddress, security: Security | None) -> None:
        path, data = self.properties_path(node.id), str(self.data_path(node.id).absolute())
        if security is None:
            replace_file(path, properties_text(node_properties(node, description.nodes, data)))
            return
        from moldau.secure_setup.directory import SecureDirectory, write_private
        from moldau.secure_setup.settings import secured_node_properties

        secured, listen = SecureDirectory(self.path), security.listen or ALL_INTERFACES
        properties = secured_node_properties(
            node, description.nodes, data, secured.stores, listen, security.advertise, secured.ensured_token_key()
        )
        write_private(path, properties_text(properties))

    def secure(self, description: Description, security: Security, *, is_running: bool = False) -> str | None:
        """Make keys and certificates, or renew them; return the password of the admin user if it is new."""
        from moldau.secure_setup.directory import SecureDirectory
        from moldau.secure_setup.problems import SetupFailed

        secured, now = SecureDirectory(self.path), datetime.now(UTC)
        try:
            if not secured.is_set_up:
                controllers = [node.id for node in description.nodes if node.controller_port]
                return secured.set_up(security.hosts(), [self.data_path(each) for each in controllers], now)
            secured.renew_if_due(security.hosts(), now, is_running=is_running)
        except SetupFailed as failed:
            raise CommandFailed(f"--secure: {failed}") from failed
        return None

    def renew_if_due(self, description: Description) -> None:
        """Renew the certificate of a secured cluster if it expires soon; running nodes notice the new file."""
        if description.is_secure:
            self.secure(description, Security(), is_running=True)

    def check_path(self) -> None:
        """Fail if the directory cannot hold nodes, whatever is in it."""
        if "," in str(self.path.absolute()):
            raise CommandFailed(
                f"{self.path.absolute()} contains a comma, which separates directories in log.dirs;"
                " choose another --data-dir"
            )
        if self.path.is_file():
            raise CommandFailed(f"{self.path} is a file; choose another --data-dir")

    def _check_no_foreign_content(self) -> None:
        """Fail if a new cluster cannot be created in this directory."""
        self.check_path()
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


def _check_same_security(directory: ClusterDirectory, description: Description, security: Security | None) -> None:
    path = directory.path
    if security is None and description.is_secure:
        raise CommandFailed(f"the cluster in {path} is secured; start it with --secure")
    if security is None:
        return
    if not description.is_secure:
        raise CommandFailed(
            f"the cluster in {path} was made without --secure, and its clients have no passwords;"
            " choose another --data-dir"
        )
    listen, advertised = directory.client_hosts(description, description.nodes[0]) or (None, None)
    if security.listen not in (None, listen) or security.advertise not in (None, advertised):
        raise CommandFailed(
            f"the addresses of the cluster in {path} are in node-N/server.properties; change them there, and leave"
            " --listen and --advertise out (--secure-name adds a name to the certificate)"
        )


def _new_description(count: int, base_port: int, cluster_id: str, is_secure: bool) -> Description:
    ports = range(base_port, base_port + count)
    if ports[-1] > PORT_MAX:
        raise CommandFailed(f"--base-port {base_port} leaves no room for {count} ports; the last is {PORT_MAX}")
    used_ports = set(ports)
    controller_ports = ports_above([port + CONTROLLER_PORTS_ABOVE for port in ports], used_ports)
    internal_ports = [0] * count
    if is_secure:
        internal_ports = ports_above([port + INTERNAL_PORTS_ABOVE for port in ports], used_ports)
    metrics_ports = ports_above([port + METRICS_PORTS_ABOVE for port in ports], used_ports)
    nodes = map(NodeAddress, range(1, count + 1), ports, controller_ports, internal_ports, metrics_ports)
    return Description(cluster_id, tuple(nodes), is_secure=is_secure)


def ports_above(preferred: Sequence[int], used_ports: set[int]) -> list[int]:
    """Return the preferred ports, or for each that is not free the next free one. Not ephemeral ports: the system also
    uses those for connections, and a node that restarts must find its port free."""
    ports: list[int] = []
    for port in preferred:
        candidates = (candidate for candidate in range(port, PORT_MAX + 1) if candidate not in used_ports)
        free_port = next((candidate for candidate in candidates if is_free(candidate)), None)
        if free_port is None:
            raise CommandFailed(f"no port above {port} is free for a node; choose a lower --base-port")
        used_ports.add(free_port)
        ports.append(free_port)
    return ports


def is_free(port: int, host: str = HOST) -> bool:
    """Whether nobody listens there. `host` may be empty, for all interfaces; of a host that is not this machine's the
    node will say so."""
    try:
        family, address = bind_address(host, port)
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(1)  # With SO_REUSEADDR two sockets can bind a port, but only one can listen on it.
    except OSError as error:
        return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def check_ports_are_free(description: Description, host: str = HOST) -> None:
    """Raise CommandFailed if a node cannot listen on `host`. Another program may listen on the same port elsewhere."""
    elsewhere = (
        "choose another: --listen HOST:PORT"
        if description.shared_port
        else "start a new cluster elsewhere: --data-dir DIR --base-port PORT"
    )
    for port, user in description.used_ports.items():
        if not is_free(port, host):
            raise CommandFailed(f"port {port}, which {user} needs, is in use; stop what listens there, or {elsewhere}")


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the server.properties of one node, with backslashes escaped."""
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
    """Replace a file, so that readers see the old text or the new one."""
    replace_file(path, text, sync=False)


def remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
