"""The nodes of a cluster as processes, from Kafka's server.properties, connected through a network of proxies.

They are Moldau's by default. With MOLDAU_CHAOS_KAFKA_LIBS, a directory of Apache Kafka's jars, they are Apache Kafka's,
so that the tests can be checked against it. Nodes can be killed, paused and restarted; the tests do everything else.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos_clocks import Clock
from chaos_disks import Disk
from chaos_proxy import Network
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, PartitionMetadata
from harness.patience import PATIENCE_S

KAFKA_LIBS = os.environ.get("MOLDAU_CHAOS_KAFKA_LIBS")
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 30.0
OUTPUT_LINES = 30
"""So many of the last lines of a node's output are in the report of a failure."""
REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}
FAST = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "200",
    "replica.lag.time.max.ms": "5000",
}
"""What `moldau cluster start` sets so that a lost node is noticed soon. Kafka on few cores needs its own defaults."""
SETTINGS = REPLICATED if KAFKA_LIBS else REPLICATED | FAST
RECOVERY_S = 120.0 if KAFKA_LIBS else 30.0
"""Within this time a cluster that has lost one node must accept writes again. It is a limit for waiting, not a target:
speed is measured in bench/.
"""


def until(
    condition: Callable[[], bool], what: str, patience_s: float, describe: Callable[[], str] = lambda: ""
) -> None:
    """Wait until the condition holds; `describe` returns the state if it never does."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}{describe()}"
        time.sleep(0.05)


class FaultyProcess(ABC):
    """A process into which faults are injected; its output is in a file."""

    id: int
    folder: Path
    process: subprocess.Popen[bytes] | None
    is_paused: bool

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.is_paused

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def resume(self) -> None: ...

    def end(self) -> None:
        """Stop the process in an orderly way if that is possible."""
        if self.process is None:
            return
        self.resume()
        self.process.terminate()
        try:
            self.process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def assert_alive(self) -> None:
        """Fail if the process ended without being killed."""
        if self.process is not None:
            status = self.process.poll()
            assert status is None, f"{type(self).__name__} {self.id} ended with {status}: {self.output_tail()}"

    def output_tail(self) -> str:
        lines = (self.folder / "output").read_text(errors="replace").splitlines()
        return "\n".join(lines[-OUTPUT_LINES:])


@dataclass
class Node(FaultyProcess):
    id: int
    roles: str
    folder: Path
    network: Network
    process: subprocess.Popen[bytes] | None = None
    is_paused: bool = False
    disk: Disk | None = None
    """A disk of its own, which can be full."""
    clock: Clock | None = None
    """A clock of its own, which can be set."""
    memory_max_bytes: int = 0
    is_stopping: bool = False
    complaints: list[str] = field(default_factory=list)
    """What went wrong when it was stopped."""

    @property
    def is_up(self) -> bool:
        return super().is_up and not self.is_stopping

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def format(self) -> None:
        done = subprocess.run(_format_command(self.folder / "server.properties"), capture_output=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()

    def start(self) -> None:
        assert self.process is None
        if self.disk is not None and self.disk.is_full:
            self.disk.empty()  # to start, a node needs space
        environment = os.environ | (self.clock.environment() if self.clock else {})
        with (self.folder / "output").open("ab") as output:
            output.write(b"--- start\n")
            output.flush()
            command = _start_command(self.folder / "server.properties")
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        self.network.runs_as(self.id, self.process.pid)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None
        self.is_paused = self.is_stopping = False

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def begin_to_stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.is_stopping = True

    def await_stop(self) -> None:
        """It has to end by itself, with status 0, or by the signal if it had just been started."""
        assert self.process is not None
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.complaints.append(f"node {self.id} does not stop: {self.output_tail()}")
            self.kill()
            return
        if status not in (0, -signal.SIGTERM):
            self.complaints.append(f"node {self.id} ended with {status} when it was stopped: {self.output_tail()}")
        self.process, self.is_stopping = None, False

    def measure(self) -> None:
        """Note how much memory the node has."""
        if self.process is not None:
            with contextlib.suppress(OSError):  # it has just ended
                found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
                self.memory_max_bytes = max(self.memory_max_bytes, 1024 * int(found[1]) if found else 0)


@dataclass
class Cluster:
    nodes: dict[int, Node]
    network: Network
    bootstrap: str
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_broker]

    def assert_alive(self) -> None:
        for node in self.nodes.values():
            node.assert_alive()

    def await_brokers(self) -> None:
        """Wait until all brokers are registered and unfenced."""
        self.await_broker_count(len(self.brokers))

    def await_broker_count(self, count: int) -> None:
        until(lambda: self._brokers_known() == count, f"{count} brokers are registered", START_PATIENCE_S)

    def create_topic(self, name: str, partitions: int, min_insync: int, **settings: str) -> None:
        more = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(name, partitions, 3, config={"min.insync.replicas": str(min_insync), **more})
        self.admin.create_topics([new], operation_timeout=30, request_timeout=30)[name].result(40)
        self.await_in_sync(name, START_PATIENCE_S)

    def await_in_sync(self, topic: str, patience_s: float) -> None:
        until(lambda: self.is_in_sync(topic), f"all replicas of {topic} are in sync", patience_s)

    def is_in_sync(self, topic: str) -> bool:
        self.assert_alive()
        return are_in_sync(self.partitions(topic))

    def describe(self, topic: str) -> str:
        """Describe the leader and the in-sync replicas, as far as they are known."""
        states = [f"{each.id} is led by {each.leader}, in sync {each.isrs}" for each in self.partitions(topic)]
        return "; ".join(states) or f"nothing is known of {topic}"

    def controller(self) -> Node | None:
        """Return the active controller, by what the nodes log about themselves."""
        said = re.compile(rb"node (\d+) is the active controller from controller epoch (\d+) on")
        found = [match for node in self.nodes.values() for match in said.findall((node.folder / "output").read_bytes())]
        latest = max(found, key=lambda match: int(match[1]), default=None)
        return self.nodes[int(latest[0])] if latest else None

    def partitions(self, topic: str) -> list[PartitionMetadata]:
        """Return nothing if no broker answers."""
        try:
            return list(self.admin.list_topics(topic, timeout=5).topics[topic].partitions.values())
        except KafkaException:
            return []

    def all_partitions(self) -> list[PartitionMetadata]:
        """Return those of all topics, internal ones too, or nothing if no broker answers."""
        try:
            topics = self.admin.list_topics(timeout=5).topics.values()
        except KafkaException:
            return []
        return [each for topic in topics for each in topic.partitions.values()]

    def ends(self) -> dict[str, dict[str, int | str]]:
        """Return the end of each partition for all readers, and for those of committed records."""
        places = [TopicPartition(topic, each) for topic, parts in self._partition_ids().items() for each in parts]
        found: dict[str, dict[str, int | str]] = {}
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            asked = self.admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=level)
            ends = found.setdefault(level.name, {})
            for place, future in asked.items():
                try:
                    ends[f"{place.topic}-{place.partition}"] = future.result(10).offset
                except (KafkaException, TimeoutError) as error:
                    ends[f"{place.topic}-{place.partition}"] = str(error)
        return found

    def _partition_ids(self) -> dict[str, list[int]]:
        try:
            topics = self.admin.list_topics(timeout=5).topics
        except KafkaException:
            return {}
        return {name: list(topic.partitions) for name, topic in topics.items()}

    def _brokers_known(self) -> int:
        self.assert_alive()
        try:
            return len(self.admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return 0


def are_in_sync(partitions: Sequence[PartitionMetadata]) -> bool:
    return bool(partitions) and all(each.leader >= 0 and len(each.isrs) == len(each.replicas) for each in partitions)


@contextmanager
def cluster(
    folder: Path,
    roles: Mapping[int, str],
    settings: Mapping[str, str] | None = None,
    equip: Callable[[Node, ExitStack], None] = lambda node, stack: None,
) -> Iterator[Cluster]:
    """Run a new node for each of the roles (`broker`, `controller` or both); stop them all at the end. `equip` may give
    a node a disk or a clock before it is started, and put on the stack how to get rid of it."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        nodes = {number: Node(number, role, folder / f"node-{number}", network) for number, role in roles.items()}
        bootstrap = write_properties(list(nodes.values()), network, SETTINGS | dict(settings or {}))
        for node in nodes.values():
            equip(node, stack)
            stack.callback(node.end)
            node.format()
        for node in nodes.values():
            node.start()
        running = Cluster(nodes, network, bootstrap)
        running.await_brokers()
        yield running


def write_properties(nodes: Sequence[Node], network: Network, settings: Mapping[str, str]) -> str:
    """Write server.properties for each node; return the bootstrap servers, which are proxies like all advertised
    addresses."""
    kinds = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}
    ports = {(node.id, kind): port for node in nodes for kind, port in zip(kinds, free_ports(2), strict=True)}
    proxies = {where: network.proxy(where[0], port) for where, port in ports.items() if _plays(nodes, where)}
    voters = ",".join(f"{node}@127.0.0.1:{port}" for (node, kind), port in proxies.items() if kind == "controller")
    for node in nodes:
        mine = [kind for kind in kinds if kind in node.roles]
        lines = {
            "process.roles": node.roles,
            "node.id": str(node.id),
            "controller.quorum.voters": voters,
            "listeners": ",".join(f"{kinds[kind]}://127.0.0.1:{ports[node.id, kind]}" for kind in mine),
            "advertised.listeners": ",".join(f"{kinds[kind]}://127.0.0.1:{proxies[node.id, kind]}" for kind in mine),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(node.data),
            **settings,
        }
        node.folder.mkdir(parents=True)
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        (node.folder / "server.properties").write_text(text)
    return ",".join(f"127.0.0.1:{port}" for (_, kind), port in proxies.items() if kind == "broker")


def _plays(nodes: Sequence[Node], where: tuple[int, str]) -> bool:
    return any(node.id == where[0] and where[1] in node.roles for node in nodes)


def free_ports(count: int) -> list[int]:
    """Return ports below the range that the kernel gives to clients, so that a restarted node finds its port free."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe:
            if port not in found and probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return found


def _format_command(properties: Path) -> list[str]:
    words = ["format", "-t", CLUSTER_ID, "-c", str(properties)]
    if KAFKA_LIBS:
        return ["java", "-cp", f"{KAFKA_LIBS}/*", "kafka.tools.StorageTool", *words]
    return [sys.executable, "-c", "import sys; from moldau.cli.kafka.storage import main; sys.exit(main())", *words]


def _start_command(properties: Path) -> list[str]:
    if KAFKA_LIBS:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return ["java", "-Xmx384M", quiet, "-cp", f"{KAFKA_LIBS}/*", "kafka.Kafka", str(properties)]
    return [sys.executable, "-m", "moldau", "start", "--config", str(properties)]
