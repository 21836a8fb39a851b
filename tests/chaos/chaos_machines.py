"""Three machines that each run `moldau start --cores 2`, as groups of processes at addresses of their own (127.0.0.1 to
127.0.0.3). A whole machine can be killed, paused and started again, and so can one of its nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos_nodes import FAST, Cluster, FaultyProcess, free_ports
from chaos_proxy import Network

CORES = 2
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@dataclass
class Machine(FaultyProcess):
    """The supervisor of a machine and its nodes. It has what `chaos_faults` and `Cluster` use of a node."""

    id: int
    host: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    is_paused: bool = False
    is_broker: bool = True

    def start(self) -> None:
        assert self.process is None
        overrides = [word for key, value in FAST.items() for word in ("-o", f"{key}={value}")]
        everyone = ",".join(f"{host}:{self.port}" for host in HOSTS)
        words = ["--cores", str(CORES), "--machines", everyone, "--advertise", self.host]
        where = ["--listen", f"{self.host}:{self.port}", "-d", str(self.folder / "data")]
        with (self.folder / "output").open("ab") as output:
            command = [sys.executable, "-m", "moldau", "start", *words, *where, *overrides]
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def node_pids(self) -> list[int]:
        """Return the processes of the nodes that were started last, whether or not they live."""
        pids = []
        for file in (self.folder / "data").glob("node-*/process.json"):
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                pids.append(int(json.loads(file.read_text())["pid"]))
        return pids

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()  # first, so that it restarts none of its nodes
        self._signal_nodes(signal.SIGKILL)
        self.process.wait()
        self.process = None
        self.is_paused = False

    def kill_one_node(self, index: int) -> None:
        """Kill a node; the supervisor starts it again."""
        pids = self.node_pids()
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[index % len(pids)], signal.SIGKILL)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self._signal_nodes(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        assert self.process is not None
        self._signal_nodes(signal.SIGCONT)
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def _signal_nodes(self, number: signal.Signals) -> None:
        for pid in self.node_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@dataclass
class Machines(Cluster):
    """Kafka's brokers are the nodes: CORES of them on each machine."""

    def await_brokers(self) -> None:
        self.await_broker_count(CORES * len(HOSTS))


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """Run three machines; stop them all at the end."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        port = free_ports(1)[0]
        running = {number: Machine(number, host, port, folder / host) for number, host in enumerate(HOSTS, 1)}
        for machine in running.values():
            machine.folder.mkdir(parents=True)
            stack.callback(machine.end)
            machine.start()
        cluster = Machines(running, network, ",".join(f"{host}:{port}" for host in HOSTS))  # type: ignore[arg-type]
        cluster.await_brokers()
        yield cluster
