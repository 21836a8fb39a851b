"""A real cluster inside this process, for tests and notebooks: three brokers that can be killed, frozen and cut
off, and whose disks can be full.

with cluster() as kafka:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    kafka.kill(kafka.leader_of("orders", 0))
"""

from __future__ import annotations

import os
import random
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from moldau.base.ids import uuid_text
from moldau.local_cluster import HOST, NodeAddress, node_properties
from moldau.log.meta_properties import META_PROPERTIES, parse
from moldau.secure_setup.settings import secured_node_properties
from moldau.settings import from_properties
from moldau.testing.broker import NO_RESERVE, Property, property_text
from moldau.testing.cluster_node import ClusterNode
from moldau.testing.secured import SecuredClients

PORTS: Final = range(20_000, 32_000)
"""Below the system's ephemeral ports: a node that restarts must find its ports free, and one that calls a stopped
node must not connect to itself."""
PATIENCE_S: Final = 60.0 * float(os.environ.get("MOLDAU_TEST_PATIENCE", "1"))
LOOK_EVERY_S: Final = 0.01
Nodes = int | Iterable[int]


class TestCluster(SecuredClients):
    """Nodes are numbered from 1; `nodes[1]` is the first."""

    __test__ = False  # tells pytest that this is no test class

    def __init__(
        self,
        data_dir: Path,
        nodes: int = 3,
        properties: Mapping[str, Property] | None = None,
        *,
        secure: bool = False,
    ) -> None:
        """Raises SettingsError for an invalid value; warns (UserWarning) of a key without effect. `secure` is like
        `moldau cluster start --secure`."""
        self.data_dir = data_dir
        self._delays_ms: dict[tuple[int, int], int | None] = {}
        """The delays of faulty links by (caller, callee); None means cut."""
        settings_by_name = {key: property_text(value) for key, value in (properties or {}).items()}
        cluster_id = _known_cluster_id(data_dir) or uuid_text(random.SystemRandom().randbytes(16))
        free_ports = _free_ports(nodes, 3 if secure else 2)
        addresses = [NodeAddress(1 + index, *ports) for index, ports in enumerate(free_ports)]
        if secure:
            self._secure([_log_dir(data_dir, each) for each in addresses])
        ports = {each: (each.port, each.controller_port, each.internal_port) for each in addresses}
        self._node_of_port = {port: each.id for each in addresses for port in ports[each]}
        self.nodes: dict[int, ClusterNode] = {}
        for each in addresses:
            properties_of_node = self._node_properties(each, addresses)
            texts = {**properties_of_node, **NO_RESERVE, **settings_by_name}
            settings = replace(from_properties(texts), cluster_id=cluster_id)
            self.nodes[each.id] = ClusterNode(each, settings, partial(self._link, each.id))
        for line in next(iter(self.nodes.values())).settings.warnings:
            warnings.warn(line, stacklevel=2)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients."""
        return ",".join(node.address for node in self.nodes.values())

    def _node_properties(self, node: NodeAddress, nodes: list[NodeAddress]) -> dict[str, str]:
        log_dir = str(_log_dir(self.data_dir, node))
        if self._secured is None:
            return node_properties(node, nodes, log_dir)
        secured = self._secured
        return secured_node_properties(node, nodes, log_dir, secured.stores, HOST, None, secured.ensured_token_key())

    def _await_metadata(self) -> None:
        """Wait until every node knows what any of them knows now."""

        def offsets() -> list[int]:
            nodes = [node.node for node in self._responsive_nodes()]
            return [node.assembly.current.image.offset for node in nodes if node is not None]

        latest = max(offsets())
        self.wait_for(lambda: min(offsets()) >= latest, what=f"every node has the metadata up to {latest}")

    def start(self) -> TestCluster:
        """Return when all nodes are ready; raise the error if one fails to start."""
        for node in self.nodes.values():
            node.start()
        try:
            for node in self.nodes.values():
                node.await_ready()
            self._await_metadata()  # the last node may be ready before the others know that
        except BaseException:
            self.kill_all()
            raise
        return self

    def stop_all(self) -> None:
        """Stop cleanly, the active controller last: all data is on disk afterwards."""
        self.heal()
        leader = self.controller()
        for node in sorted(self.nodes.values(), key=lambda node: node.id == leader):
            if node.is_running:
                node.stop()

    def kill_all(self) -> None:
        for node in self.nodes.values():
            with suppress(ValueError):
                node.kill()

    # --- faults of a node ---------------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """Simulate the death of the process: connections break, nothing more is written, nobody is notified."""
        self.nodes[node_id].kill()

    def stop(self, node_id: int) -> None:
        """Stop cleanly: the node hands over its leaderships first."""
        self.nodes[node_id].stop()

    def restart(self, node_id: int, wait: bool = True) -> None:
        """Start the node again; stop it first if it runs. It is ready on return, unless `wait` is False."""
        node = self.nodes[node_id]
        if node.is_running:
            node.stop()
        node.start()
        if wait:
            node.await_ready()

    def pause(self, node_id: int) -> None:
        """Freeze the node: its connections stay open, and it sends nothing."""
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].resume()

    def fill_disk(self, node_id: int) -> None:
        """Let the node's disk be full: writes fail, reads and deletions do not. It lasts until `free_disk`."""
        self.nodes[node_id].disk.is_full = True

    def free_disk(self, node_id: int) -> None:
        self.nodes[node_id].disk.is_full = False

    # --- faults between nodes -----------------------------------------------------------------------------------

    def partition(self, some: Nodes, others: Nodes) -> None:
        """Cut the links between these nodes and those until `heal`. Clients still reach all of them."""
        self._set(some, others, None)

    def delay(self, some: Nodes, others: Nodes, delay_ms: int) -> None:
        """Delay everything between these nodes and those by `delay_ms` each way."""
        self._set(some, others, delay_ms)

    def heal(self) -> None:
        """Repair all links."""
        self._delays_ms.clear()

    def _set(self, some: Nodes, others: Nodes, delay_ms: int | None) -> None:
        for one in _ids(some):
            for other in _ids(others):
                assert one in self.nodes, f"there is no node {one}"
                assert other in self.nodes, f"there is no node {other}"
                self._delays_ms[one, other] = self._delays_ms[other, one] = delay_ms

    def _link(self, caller: int, host: str, port: int) -> int | None:
        """Called by the nodes' connections, in their threads."""
        return self._delays_ms.get((caller, self._node_of_port.get(port, caller)), 0)

    # --- the state of the cluster -------------------------------------------------------------------------------

    def controller(self) -> int | None:
        """Return the leader of the metadata quorum, or None: if several claim it, the one with the latest epoch."""
        drivers = {node.id: node.node.assembly.driver for node in self._responsive_nodes() if node.node is not None}
        leaders = {driver.leader_epoch: node_id for node_id, driver in drivers.items() if driver.is_leader}
        return leaders[max(leaders)] if leaders else None

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return None if the partition does not exist or has no leader."""
        state = self._partition(topic, partition)
        return state[0] if state is not None and state[0] >= 0 else None

    def isr_of(self, topic: str, partition: int) -> set[int]:
        """Return the in-sync replicas; none if the partition does not exist."""
        state = self._partition(topic, partition)
        return set(state[1]) if state is not None else set()

    def wait_for(self, condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "") -> None:
        """Return when the condition holds; raise TimeoutError, with `what` in it, if it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what or 'the condition'} did not come true within {timeout_s:g} s: {self!r}")
            time.sleep(LOOK_EVERY_S)

    def wait_for_leader(
        self, topic: str, partition: int, other_than: int | None = None, timeout_s: float = PATIENCE_S
    ) -> int:
        """Return the leader once there is one other than `other_than`."""
        self.wait_for(
            lambda: self.leader_of(topic, partition) not in (None, other_than),
            timeout_s,
            f"a leader of {topic}-{partition}",
        )
        leader = self.leader_of(topic, partition)
        return leader if leader is not None else self.wait_for_leader(topic, partition, other_than, timeout_s)

    def wait_for_isr(self, topic: str, partition: int, nodes: Iterable[int], timeout_s: float = PATIENCE_S) -> None:
        expected = set(nodes)
        self.wait_for(
            lambda: self.isr_of(topic, partition) == expected,
            timeout_s,
            f"an in-sync set {expected} of {topic}-{partition}",
        )

    def wait_for_topic(self, topic: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until every running node knows the topic, so that any of them answers for it."""

        def is_known() -> bool:
            nodes = [node.node for node in self._responsive_nodes()]
            return all(node is not None and topic in node.assembly.current.image.topics for node in nodes)

        self.wait_for(is_known, timeout_s, f"every node knows {topic}")

    def _partition(self, topic: str, partition: int) -> tuple[int, tuple[int, ...]] | None:
        """Return leader and in-sync replicas from the node with the latest metadata."""
        images = [node.node.assembly.current.image for node in self._responsive_nodes() if node.node is not None]
        if not images:
            return None
        topic_image = max(images, key=lambda image: image.offset).topics.get(topic)
        if topic_image is None or partition >= len(topic_image.partitions):
            return None
        state = topic_image.partitions[partition]
        return state.leader, state.isr

    def _responsive_nodes(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_running and not node.is_paused]

    def __repr__(self) -> str:
        return f"<Moldau cluster of {', '.join(map(repr, self.nodes.values()))}>"


@contextmanager
def cluster(
    nodes: int = 3, data_dir: str | Path | None = None, *, secure: bool = False, **properties: Property
) -> Iterator[TestCluster]:
    """Run a cluster for the length of a `with`. Settings are Kafka's, with underscores: `min_insync_replicas=1`.

    With `secure` clients need TLS and a password, which `client_config` returns, and ACLs.
    The error of a node that failed by itself is raised at the end. With a temporary directory, the nodes are killed.
    """
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    if data_dir is not None:
        running = TestCluster(Path(data_dir), nodes, settings, secure=secure)
        yield from _running(running, running.stop_all)
        return
    with tempfile.TemporaryDirectory(prefix="moldau-", ignore_cleanup_errors=True) as directory:
        running = TestCluster(Path(directory), nodes, settings, secure=secure)
        yield from _running(running, running.kill_all)


def _running(test_cluster: TestCluster, end: Callable[[], None]) -> Iterator[TestCluster]:
    test_cluster.start()
    try:
        yield test_cluster
    finally:
        end()
    for node in test_cluster.nodes.values():
        fault = node.fault()
        if fault is not None:
            raise fault


def _log_dir(data_dir: Path, node: NodeAddress) -> Path:
    return data_dir / f"node-{node.id}"


def _known_cluster_id(data_dir: Path) -> str | None:
    """Return the cluster id in a directory that a cluster has used before."""
    for file in data_dir.glob(f"node-*/{META_PROPERTIES}"):
        return parse(file.read_text()).cluster_id
    return None


def _ids(nodes: Nodes) -> Iterable[int]:
    return [nodes] if isinstance(nodes, int) else nodes


def _free_ports(nodes: int, for_each: int) -> list[list[int]]:
    """Return so many ports for each node, all different."""
    candidates = random.SystemRandom().sample(PORTS, len(PORTS))
    free = (port for port in candidates if _is_free(port))
    return [[next(free) for _ in range(for_each)] for _ in range(nodes)]


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
        return True
