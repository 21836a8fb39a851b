"""A real cluster inside this process, for tests and notebooks: three brokers that can be killed, frozen and cut off.

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
from moldau.base.local_cluster import HOST, NodeAddress, node_properties
from moldau.log.meta_properties import META_PROPERTIES, parse
from moldau.settings import Settings, from_properties
from moldau.testing.broker import Property, property_text
from moldau.testing.cluster_node import ClusterNode

PORTS: Final = range(20_000, 32_000)
"""Below those that the system gives to connections: a node that restarts must find its ports free, and one that calls
a node that is down must not reach itself."""
PATIENCE_S: Final = 60.0 * float(os.environ.get("MOLDAU_TEST_PATIENCE", "1"))
LOOK_EVERY_S: Final = 0.01
Nodes = int | Iterable[int]


class TestCluster:
    """Nodes are numbered from 1; `nodes[1]` is the first."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    def __init__(self, data_dir: Path, nodes: int = 3, properties: Mapping[str, Property] | None = None) -> None:
        """SettingsError for a value that cannot be obeyed; a key without effect is told by a UserWarning."""
        self.data_dir = data_dir
        self._delays_ms: dict[tuple[int, int], int | None] = {}
        """Of the lines that are not as they should be; None is cut. By who calls whom."""
        given = {key: property_text(value) for key, value in (properties or {}).items()}
        cluster_id = _known_cluster_id(data_dir) or uuid_text(random.SystemRandom().randbytes(16))
        addresses = [NodeAddress(1 + index, *ports) for index, ports in enumerate(_free_ports(nodes))]
        self._node_of_port = {port: each.id for each in addresses for port in (each.port, each.controller_port)}
        self.nodes: dict[int, ClusterNode] = {}
        for each in addresses:
            settings = _settings(each, addresses, data_dir, cluster_id, given)
            self.nodes[each.id] = ClusterNode(each, settings, partial(self._link, each.id))
        for line in next(iter(self.nodes.values())).settings.warnings:
            warnings.warn(line, stacklevel=2)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses to give to clients."""
        return ",".join(node.address for node in self.nodes.values())

    def start(self) -> TestCluster:
        """Returns when all nodes are ready; raises what kept one from it."""
        for node in self.nodes.values():
            node.start()
        try:
            for node in self.nodes.values():
                node.await_ready()
        except BaseException:
            self.kill_all()
            raise
        return self

    def stop_all(self) -> None:
        """Stops cleanly, the active controller last: everything is on disk afterwards."""
        self.heal()
        leader = self.controller()
        for node in sorted(self.nodes.values(), key=lambda node: node.id == leader):
            if node.is_running:
                node.stop()

    def kill_all(self) -> None:
        for node in self.nodes.values():
            with suppress(ValueError):
                node.kill()

    # --- what can happen to a node ------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """As if the process died: connections break, nothing more is written, nobody is told."""
        self.nodes[node_id].kill()

    def stop(self, node_id: int) -> None:
        """In order: what it leads is handed over first."""
        self.nodes[node_id].stop()

    def restart(self, node_id: int, wait: bool = True) -> None:
        """Starts it again, stopping it first if it runs. It is ready on return, unless told not to wait."""
        node = self.nodes[node_id]
        if node.is_running:
            node.stop()
        node.start()
        if wait:
            node.await_ready()

    def pause(self, node_id: int) -> None:
        """It stands still: its connections stay open, and it says nothing."""
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].resume()

    # --- what can happen between nodes --------------------------------------------------------------------------

    def partition(self, some: Nodes, others: Nodes) -> None:
        """Nothing passes between these nodes and those any more, until `heal`. Clients still reach all of them."""
        self._set(some, others, None)

    def delay(self, some: Nodes, others: Nodes, delay_ms: int) -> None:
        """What these nodes and those say to each other takes so long on its way, each way."""
        self._set(some, others, delay_ms)

    def heal(self) -> None:
        """All lines are as they should be."""
        self._delays_ms.clear()

    def _set(self, some: Nodes, others: Nodes, delay_ms: int | None) -> None:
        for one in _ids(some):
            for other in _ids(others):
                assert one in self.nodes, f"there is no node {one}"
                assert other in self.nodes, f"there is no node {other}"
                self._delays_ms[one, other] = self._delays_ms[other, one] = delay_ms

    def _link(self, caller: int, host: str, port: int) -> int | None:
        """Asked by the nodes' connections, in their threads."""
        return self._delays_ms.get((caller, self._node_of_port.get(port, caller)), 0)

    # --- what the cluster knows ---------------------------------------------------------------------------------

    def controller(self) -> int | None:
        """Who leads the metadata quorum, if anybody does: of several that think so, the one of the latest epoch."""
        drivers = {node.id: node.node.assembly.driver for node in self._at_work() if node.node is not None}
        leaders = {driver.leader_epoch: node_id for node_id, driver in drivers.items() if driver.is_leader}
        return leaders[max(leaders)] if leaders else None

    def leader_of(self, topic: str, partition: int) -> int | None:
        """None if there is no such partition, or nobody who leads it."""
        found = self._partition(topic, partition)
        return found[0] if found is not None and found[0] >= 0 else None

    def isr_of(self, topic: str, partition: int) -> set[int]:
        """The replicas in sync; none if there is no such partition."""
        found = self._partition(topic, partition)
        return set(found[1]) if found is not None else set()

    def wait_for(self, condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "") -> None:
        """Returns when the condition holds; TimeoutError, with `what` in it, if it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what or 'the condition'} did not come true within {timeout_s:g} s: {self!r}")
            time.sleep(LOOK_EVERY_S)

    def wait_for_leader(
        self, topic: str, partition: int, other_than: int | None = None, timeout_s: float = PATIENCE_S
    ) -> int:
        """The leader, once there is one, and another than that."""
        self.wait_for(
            lambda: self.leader_of(topic, partition) not in (None, other_than),
            timeout_s,
            f"a leader of {topic}-{partition}",
        )
        leader = self.leader_of(topic, partition)
        return leader if leader is not None else self.wait_for_leader(topic, partition, other_than, timeout_s)

    def wait_for_isr(self, topic: str, partition: int, nodes: Iterable[int], timeout_s: float = PATIENCE_S) -> None:
        wanted = set(nodes)
        self.wait_for(
            lambda: self.isr_of(topic, partition) == wanted,
            timeout_s,
            f"an in-sync set {wanted} of {topic}-{partition}",
        )

    def wait_for_topic(self, topic: str, timeout_s: float = PATIENCE_S) -> None:
        """Waits until every node that runs knows the topic: whoever asks any of them is told of it."""

        def is_known() -> bool:
            nodes = [node.node for node in self._at_work()]
            return all(node is not None and topic in node.assembly.current.image.topics for node in nodes)

        self.wait_for(is_known, timeout_s, f"every node knows {topic}")

    def _partition(self, topic: str, partition: int) -> tuple[int, tuple[int, ...]] | None:
        """Leader and in-sync set, as the node says that has heard most."""
        images = [node.node.assembly.current.image for node in self._at_work() if node.node is not None]
        if not images:
            return None
        known = max(images, key=lambda image: image.offset).topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return None
        state = known.partitions[partition]
        return state.leader, state.isr

    def _at_work(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_running and not node.is_paused]

    def __repr__(self) -> str:
        return f"<Moldau cluster of {', '.join(map(repr, self.nodes.values()))}>"


@contextmanager
def cluster(nodes: int = 3, data_dir: str | Path | None = None, **properties: Property) -> Iterator[TestCluster]:
    """A cluster for the length of a `with`. Settings are Kafka's, with underscores: `min_insync_replicas=1`.

    What made a node fall over by itself is raised at the end. A temporary directory is not worth a clean stop.
    """
    named = {name.replace("_", "."): value for name, value in properties.items()}
    if data_dir is not None:
        running = TestCluster(Path(data_dir), nodes, named)
        yield from _running(running, running.stop_all)
        return
    with tempfile.TemporaryDirectory(prefix="moldau-", ignore_cleanup_errors=True) as directory:
        running = TestCluster(Path(directory), nodes, named)
        yield from _running(running, running.kill_all)


def _running(one: TestCluster, end: Callable[[], None]) -> Iterator[TestCluster]:
    one.start()
    try:
        yield one
    finally:
        end()
    for node in one.nodes.values():
        fault = node.fault()
        if fault is not None:
            raise fault


def _settings(
    node: NodeAddress, nodes: list[NodeAddress], data_dir: Path, cluster_id: str, given: Mapping[str, str]
) -> Settings:
    properties = node_properties(node, nodes, str(data_dir / f"node-{node.id}"))
    return replace(from_properties({**properties, **given}), cluster_id=cluster_id)


def _known_cluster_id(data_dir: Path) -> str | None:
    """What a directory says that a cluster has used before."""
    for file in data_dir.glob(f"node-*/{META_PROPERTIES}"):
        return parse(file.read_text()).cluster_id
    return None


def _ids(nodes: Nodes) -> Iterable[int]:
    return [nodes] if isinstance(nodes, int) else nodes


def _free_ports(nodes: int) -> list[tuple[int, int]]:
    """Two for each node, none of them twice."""
    candidates = random.SystemRandom().sample(PORTS, len(PORTS))
    free = (port for port in candidates if _is_free(port))
    return [(next(free), next(free)) for _ in range(nodes)]


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
        return True
