"""Three nodes as processes that can be killed and restarted: Moldau by `moldau cluster`, Kafka by a script.

A benchmark sees a `Cluster`: addresses and process ids by node id. Both kinds are context managers that leave no
process and no directory behind.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.brokers.connection import BrokerRefused
from bench.brokers.procfs import command_line, has_ended, listener
from bench.brokers.servers import KAFKA, MOLDAU, SOURCES, START_TIMEOUT_S, STOP_TIMEOUT_S, NotStarted, Server, is_open
from bench.cluster.wire import ask_any, quorum, view

NODES = 3
LOOK_AGAIN_S = 0.005
BASE_PORTS = range(20_000, 28_000)
"""Below the kernel's ephemeral ports, so that a free port stays free."""
PORTS_A_CLUSTER = 20
WHOLE_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class ClusterServer(Server):
    """A cluster as the rounds see it; the address is the list for clients."""

    node_pids: tuple[int, ...] = ()

    @property
    def pids(self) -> tuple[int, ...]:
        return self.node_pids


class Cluster(ABC):
    def __init__(self, name: str) -> None:
        self.name = name
        self.addresses: dict[int, str] = {}
        self.pids: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def server(self) -> ClusterServer:
        return ClusterServer(self.name, self.bootstrap, 0, tuple(self.pids.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()

    @abstractmethod
    def start_fresh(self) -> float:
        """Start all nodes on empty directories and return at once; return the time at which they were started."""

    @abstractmethod
    def start_again(self) -> float:
        """Start all stopped nodes on their data; return the time at which they were started."""

    @abstractmethod
    def restart(self, node: int) -> None:
        """Start a killed node on its data."""

    @abstractmethod
    def stop(self, patience_s: float = STOP_TIMEOUT_S) -> None:
        """Stop all nodes cleanly, and kill those that take too long."""

    @abstractmethod
    def kill_all(self) -> None:
        """Kill all nodes with -9: their data is not needed any more, or must survive that."""

    def others(self, node: int) -> list[str]:
        return [address for each, address in self.addresses.items() if each != node]

    def signal(self, node: int, number: signal.Signals) -> None:
        os.kill(self.pids[node], number)

    def await_ended(self, node: int) -> None:
        await_true(lambda: has_ended(self.pids[node]), f"{self.name}: node {node} has ended", STOP_TIMEOUT_S)

    def await_ready(self) -> None:
        """Wait until each node knows all others: then clients can start anywhere."""
        await_true(lambda: all(map(self._knows_all, self.addresses.values())), f"{self.name}: all nodes are ready")

    def await_whole(self) -> None:
        """Wait until, besides, every voter has all committed records: another node may be lost now."""
        self.await_ready()
        await_true(self._quorum_is_whole, f"{self.name}: the quorum has caught up", WHOLE_TIMEOUT_S)

    def controller(self) -> int:
        quorum_view = ask_any(self.addresses.values(), quorum)
        if quorum_view is None:
            raise BrokerRefused(f"{self.name}: no node knows the controller")
        return quorum_view.leader

    def _knows_all(self, address: str) -> bool:
        cluster_view = ask_any([address], lambda each: view(each, []))
        return cluster_view is not None and len(cluster_view.brokers) == len(self.addresses)

    def _quorum_is_whole(self) -> bool:
        quorum_view = ask_any(self.addresses.values(), quorum)
        return quorum_view is not None and quorum_view.leader in self.addresses and quorum_view.has_caught_up


class MoldauCluster(Cluster):
    """Moldau, with the settings of `moldau cluster start`, in a temporary directory."""

    def __init__(self, settings: Sequence[str] = ()) -> None:
        super().__init__(MOLDAU)
        self._settings = [word for setting in settings for word in ("--override", setting)]
        self._directory = Path(tempfile.mkdtemp(prefix="moldau-bench-"))
        self._output = self._directory / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self._base_port = 0

    def __exit__(self, *_: object) -> None:
        try:
            self.kill_all()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def metrics(self) -> dict[int, str]:
        """The addresses of the nodes' metrics, from the line that each node logs when it starts."""
        found: dict[int, str] = {}

        def are_known() -> bool:
            lines = re.findall(r"node (\d+): metrics are at http://(\S+?)/metrics", self._output.read_text())
            found.update((int(node), address) for node, address in lines)
            return found.keys() >= self.addresses.keys()

        await_true(are_known, f"{self.name}: the addresses of metrics are known")
        return found

    def start_fresh(self) -> float:
        self.kill_all()
        shutil.rmtree(self._directory / "data", ignore_errors=True)
        self._base_port = free_ports()
        self.addresses = {1 + number: f"127.0.0.1:{self._base_port + number}" for number in range(NODES)}
        return self.start_again()

    def start_again(self) -> float:
        began = time.perf_counter()
        ports = ["--nodes", str(NODES), "--base-port", str(self._base_port)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command("start", *ports, *self._settings),
                stdout=output,
                stderr=output,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C goes to the benchmark, which then stops the cluster itself
            )
        return began

    def await_ready(self) -> None:
        try:
            super().await_ready()
        except NotStarted as late:
            raise NotStarted(f"{late}\n{self._output.read_text()[-3000:]}") from None
        self.pids = {node: listener(port_of(address)) for node, address in self.addresses.items()}

    def restart(self, node: int) -> None:
        subprocess.run(
            self._command("restart", str(node)),
            check=True,
            stdout=subprocess.DEVNULL,
            env=self._environment(),
            timeout=START_TIMEOUT_S,
        )

    def stop(self, patience_s: float = STOP_TIMEOUT_S) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end(self.pids.values(), 0.0)
        self.pids = {}

    def kill_all(self) -> None:
        end(self.pids.values(), 0.0)
        self.stop()

    def _command(self, verb: str, *words: str) -> list[str]:
        data = ["--data-dir", str(self._directory / "data")]
        return [sys.executable, "-m", "moldau", "cluster", verb, *words, *data]

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
        return os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


class KafkaCluster(Cluster):
    """Apache Kafka by a script whose `start 3` prints `node N pid P at HOST:PORT`, and `stop`.

    The script creates the nodes' files, and its processes show how a node is run. After that this class starts and
    stops the nodes itself, all at the same time and formatted before the clock starts.
    """

    def __init__(self, script: Path, address: str) -> None:
        super().__init__(KAFKA)
        if is_open(address):
            raise NotStarted(f"{address} is in use: stop the process that listens there, or wait until it ends")
        self._script = script
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._commands: dict[int, list[str]] = {}
        try:
            self._start_script()
        except BaseException:
            self._run_script("stop")
            raise

    def start_fresh(self) -> float:
        self.kill_all()
        for command in self._commands.values():
            for directory in _log_dirs(command):
                shutil.rmtree(directory, ignore_errors=True)
            subprocess.run(_format_command(command), check=True, capture_output=True)
        return self.start_again()

    def start_again(self) -> float:
        began = time.perf_counter()
        for node in self._commands:
            self.restart(node)
        return began

    def restart(self, node: int) -> None:
        quiet = subprocess.DEVNULL
        self._nodes[node] = subprocess.Popen(
            self._commands[node], stdout=quiet, stderr=quiet, stdin=quiet, start_new_session=True
        )
        self.pids[node] = self._nodes[node].pid

    def stop(self, patience_s: float = STOP_TIMEOUT_S) -> None:
        end(self.pids.values(), patience_s)
        for process in self._nodes.values():
            process.wait()
        self._nodes, self.pids = {}, {}

    def kill_all(self) -> None:
        self.stop(0.0)

    def __exit__(self, *_: object) -> None:
        try:
            self.kill_all()
        finally:
            self._run_script("stop")

    def _start_script(self) -> None:
        output = self._run_script("start", str(NODES))
        nodes = re.findall(r"node (\d+) pid (\d+) at (\S+)", output)
        if len(nodes) != NODES:
            raise NotStarted(f"{self._script} start {NODES} did not start {NODES} nodes: {output}")
        self.addresses = {int(node): address for node, _, address in nodes}
        self.pids = {int(node): int(pid) for node, pid, _ in nodes}
        self._commands = {node: command_line(pid) for node, pid in self.pids.items()}

    def _run_script(self, *words: str) -> str:
        result = subprocess.run(
            [self._script, *words], stdout=subprocess.PIPE, text=True, start_new_session=True, check=False
        )
        if result.returncode:
            raise NotStarted(f"{self._script} {' '.join(words)} failed: {result.stdout}")
        return result.stdout


def _format_command(command: Sequence[str]) -> list[str]:
    classes = command[command.index("-cp") + 1]
    tool = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", command[-1]]
    return [command[0], "-cp", classes, *tool]


def _log_dirs(command: Sequence[str]) -> list[str]:
    match = re.search(r"^log\.dirs=(.+)$", Path(command[-1]).read_text(), re.MULTILINE)
    if match is None:
        raise NotStarted(f"{command[-1]} has no log.dirs")
    return match[1].split(",")


def end(pids: Iterable[int], patience_s: float) -> None:
    """Send SIGTERM to all, and SIGKILL after `patience_s`."""
    left = [pid for pid in pids if not has_ended(pid)]
    for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, STOP_TIMEOUT_S)):
        if wait_s:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            left = _still_there(left, wait_s)


def _still_there(pids: Sequence[int], wait_s: float) -> list[int]:
    deadline = time.perf_counter() + wait_s
    while (left := [pid for pid in pids if not has_ended(pid)]) and time.perf_counter() < deadline:
        time.sleep(LOOK_AGAIN_S)
    return left


def await_true(condition: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S) -> None:
    deadline = time.perf_counter() + timeout_s
    while not condition():
        if time.perf_counter() > deadline:
            raise NotStarted(f"not within {timeout_s:g} s: {what}")
        time.sleep(LOOK_AGAIN_S)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def free_ports() -> int:
    """Return the first of enough consecutive ports on which nobody listens."""
    while True:
        first = random.choice(BASE_PORTS)
        if not any(is_open(f"127.0.0.1:{port}") for port in range(first, first + PORTS_A_CLUSTER)):
            return first
