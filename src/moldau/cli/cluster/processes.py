"""The processes of a cluster on this machine: started, looked at, signalled.

A process is known by its number and its time of birth: a number alone may long be another's. Any terminal finds the
processes through the cluster's directory; who started them does not matter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from moldau.cli.cluster.directory import ClusterDirectory, Description, read_json, write_json
from moldau.cli.connect import CommandFailed
from moldau.platforms.processes import PROCESSES

READY_WORDS: Final = b" is ready: "
"""In the line that a node announces itself with."""
READY_WITHIN_BYTES: Final = 4 << 20
"""Of a node's lines: what it may say of logs that it recovers before it is ready."""
LOG_BYTES_MAX: Final = 10 << 20
"""A log that is larger when its node starts is moved aside, to one older log."""
LOOK_EVERY_S: Final = 0.05


class NodeState(Enum):
    UP = "up"
    STARTING = "starting"
    PAUSED = "paused"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Born:
    """A process: its number and when it was born, in whatever words the system says it."""

    pid: int
    time: str

    @property
    def lives(self) -> bool:
        return PROCESSES.birth_time(self.pid) == self.time

    def signal(self, number: int) -> bool:
        """False if there is no such process any more."""
        if not self.lives:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            raise CommandFailed(f"process {self.pid} belongs to another user; do it as that user") from None
        return True


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """One run of one node, alive or not."""

    node_id: int
    born: Born
    log_path: Path
    log_position: int
    """Where its lines begin."""

    @property
    def is_ready(self) -> bool:
        try:
            with self.log_path.open("rb") as file:
                file.seek(self.log_position)
                return READY_WORDS in file.read(READY_WITHIN_BYTES)
        except FileNotFoundError:
            return False

    @property
    def is_paused(self) -> bool:
        return PROCESSES.is_paused(self.born.pid)

    def state(self) -> NodeState:
        if not self.born.lives:
            return NodeState.DOWN
        if self.is_paused:
            return NodeState.PAUSED
        return NodeState.UP if self.is_ready else NodeState.STARTING


def last_process(directory: ClusterDirectory, node_id: int) -> NodeProcess | None:
    said = read_json(directory.process_path(node_id))
    if said is None:
        return None
    born = Born(int(said["pid"]), str(said["born"]))
    return NodeProcess(node_id, born, directory.log_path(node_id), int(said["log_position"]))


def live_process(directory: ClusterDirectory, node_id: int) -> NodeProcess | None:
    process = last_process(directory, node_id)
    return process if process is not None and process.born.lives else None


def live_processes(directory: ClusterDirectory, description: Description) -> list[NodeProcess]:
    found = (live_process(directory, node.id) for node in description.nodes)
    return [process for process in found if process is not None]


def foreground(directory: ClusterDirectory) -> Born | None:
    """The `moldau cluster start` that runs, if one does."""
    said = read_json(directory.foreground_path)
    born = Born(int(said["pid"]), str(said["born"])) if said is not None else None
    return born if born is not None and born.lives else None


def this_process() -> Born:
    return Born(os.getpid(), PROCESSES.birth_time(os.getpid()) or "")


def spawn(
    directory: ClusterDirectory, description: Description, node_id: int
) -> tuple[NodeProcess, subprocess.Popen[bytes]]:
    """Starts a node in a session of its own: Ctrl-C is for the foreground, which stops nodes in an order."""
    log_path = directory.log_path(node_id)
    if log_path.exists() and log_path.stat().st_size > LOG_BYTES_MAX:
        log_path.replace(log_path.with_suffix(".log.1"))
    words = [sys.executable, "-m", "moldau", "start", "--config", str(directory.properties_path(node_id))]
    for key, value in description.overrides.items():
        words += ["--override", f"{key}={value}"]
    with log_path.open("ab") as output:
        position = output.tell()
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**node_environment(description.cluster_id), **description.log_variables},
        )
    process = NodeProcess(node_id, Born(child.pid, PROCESSES.birth_time(child.pid) or ""), log_path, position)
    said = {"pid": child.pid, "born": process.born.time, "log_position": position}
    write_json(directory.process_path(node_id), said)
    return process, child


def node_environment(cluster_id: str) -> dict[str, str]:
    """Ours, without the settings of some other broker in it; with the id that all nodes must agree on."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")}
    return {**kept, "CLUSTER_ID": cluster_id, "PYTHONUNBUFFERED": "1"}


def await_end(processes: Iterable[NodeProcess], timeout_s: float) -> list[NodeProcess]:
    """Those that are still there when the time is up."""
    deadline = time.monotonic() + timeout_s
    left = list(processes)
    while left := [process for process in left if process.born.lives]:
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_EVERY_S)
    return left


def ask_to_stop(process: NodeProcess) -> None:
    """SIGTERM; one that is paused must go on first, or it would never hear of it."""
    process.born.signal(signal.SIGTERM)
    process.born.signal(signal.SIGCONT)
