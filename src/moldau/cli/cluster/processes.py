"""The processes of a cluster on this machine: start them, read their states, send them signals.

A process is identified by its pid and its start time, because pids are reused. Any terminal finds the processes
through the cluster's directory; it does not matter who started them.

The foreground is the process of `moldau cluster start`, which stays in the foreground of its terminal. It starts the
nodes, shows their output and stops them. Nodes also run without it: if it is killed, or if `moldau cluster restart`
starts a node while there is none.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from moldau.base.listeners import SHARED_LISTENER_VARIABLE
from moldau.cli.cluster.directory import ClusterDirectory, Description, read_json, write_json
from moldau.cli.connect import CommandFailed
from moldau.cli.stop_signals import STOP_WITH_STDIN
from moldau.local_cluster import BOOTSTRAP_LISTENER
from moldau.platforms.processes import PROCESSES

READY_WORDS: Final = b" is ready: "
"""Part of the line that a node logs when it is ready."""
READY_WITHIN_BYTES: Final = 4 << 20
"""How much of a node's output is searched: it may log much about recovered logs before it is ready."""
LOG_BYTES_MAX: Final = 10 << 20
"""A log that is larger when its node starts is renamed to `.log.1`, replacing the previous one."""
LOOK_EVERY_S: Final = 0.05


class NodeState(Enum):
    UP = "up"
    STARTING = "starting"
    PAUSED = "paused"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process: its pid and its start time, in the format of the operating system."""

    pid: int
    start_time: str

    @property
    def is_alive(self) -> bool:
        return PROCESSES.start_time(self.pid) == self.start_time

    def signal(self, number: int) -> bool:
        """Send a signal; return False if the process has ended."""
        if not self.is_alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            raise CommandFailed(f"process {self.pid} belongs to another user; run this command as that user") from None
        return True


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """One run of one node, alive or not."""

    node_id: int
    identity: ProcessIdentity
    log_path: Path
    log_position: int
    """Where the output of this run begins."""

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
        return PROCESSES.is_paused(self.identity.pid)

    def state(self) -> NodeState:
        if not self.identity.is_alive:
            return NodeState.DOWN
        if self.is_paused:
            return NodeState.PAUSED
        return NodeState.UP if self.is_ready else NodeState.STARTING


def last_process(directory: ClusterDirectory, node_id: int) -> NodeProcess | None:
    content = read_json(directory.process_path(node_id))
    if content is None:
        return None
    return NodeProcess(node_id, _saved_identity(content), directory.log_path(node_id), int(content["log_position"]))


def live_process(directory: ClusterDirectory, node_id: int) -> NodeProcess | None:
    process = last_process(directory, node_id)
    return process if process is not None and process.identity.is_alive else None


def live_processes(directory: ClusterDirectory, description: Description) -> list[NodeProcess]:
    processes = (live_process(directory, node.id) for node in description.nodes)
    return [process for process in processes if process is not None]


def running_foreground(directory: ClusterDirectory) -> ProcessIdentity | None:
    """Return the process of the `moldau cluster start` that is running, or None."""
    content = read_json(directory.foreground_path)
    identity = _saved_identity(content) if content is not None else None
    return identity if identity is not None and identity.is_alive else None


def check_not_running(directory: ClusterDirectory) -> None:
    """Raise CommandFailed if the cluster in the directory, or a node of it, is running."""
    foreground = running_foreground(directory)
    if foreground is not None:
        raise CommandFailed(
            f"the cluster in {directory.path} is running already (process {foreground.pid});"
            " `moldau cluster stop` stops it"
        )
    try:
        alive = live_processes(directory, directory.description())
    except CommandFailed:
        return
    if alive:
        nodes = ", ".join(str(process.node_id) for process in alive)
        raise CommandFailed(
            f"node {nodes} of the cluster in {directory.path} is running; `moldau cluster stop` stops it"
        )


def _saved_identity(content: Mapping[str, Any]) -> ProcessIdentity:
    # A file without a start time is not ours, or of an older version: it counts as that of a process that has ended.
    return ProcessIdentity(int(content["pid"]), str(content.get("start_time", "")))


def this_process() -> ProcessIdentity:
    return ProcessIdentity(os.getpid(), PROCESSES.start_time(os.getpid()) or "")


def spawn(
    directory: ClusterDirectory, description: Description, node_id: int, stops_with_us: bool = False
) -> tuple[NodeProcess, subprocess.Popen[bytes]]:
    """Start a node in a session of its own.

    Ctrl-C then reaches only the foreground, the process of `moldau cluster start`, which stops the nodes in order. With
    `stops_with_us` the node also stops when this process ends, even if that is killed.
    """
    log_path = directory.log_path(node_id)
    if log_path.exists() and log_path.stat().st_size > LOG_BYTES_MAX:
        log_path.replace(log_path.with_suffix(".log.1"))
    command = [sys.executable, "-m", "moldau", "start", "--config", str(directory.properties_path(node_id))]
    for key, value in description.overrides.items():
        command += ["--override", f"{key}={value}"]
    with log_path.open("ab") as output:
        position = output.tell()
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if stops_with_us else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=node_environment(description, stops_with_us),
        )
    process = NodeProcess(
        node_id, ProcessIdentity(child.pid, PROCESSES.start_time(child.pid) or ""), log_path, position
    )
    content = {"pid": child.pid, "start_time": process.identity.start_time, "log_position": position}
    try:
        write_json(directory.process_path(node_id), content)
    except OSError:
        child.kill()  # other terminals would not find it, to stop it
        child.wait()
        raise
    return process, child


def node_environment(description: Description, stops_with_us: bool = False) -> dict[str, str]:
    """Return our environment without KAFKA_* settings of another broker; with the id that all nodes have to share."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")}
    own = {"CLUSTER_ID": description.cluster_id, "PYTHONUNBUFFERED": "1", **description.log_variables}
    if description.shared_port:
        own[SHARED_LISTENER_VARIABLE] = BOOTSTRAP_LISTENER
        # The settings in KAFKA_* variables are in the server.properties; this one names a file for them.
        own |= {key: os.environ[key] for key in ("KAFKA_OPTS",) if key in os.environ}
    if stops_with_us:
        own[STOP_WITH_STDIN] = "1"
    return {**inherited, **own}


def wait_for_end(processes: Iterable[NodeProcess], timeout_s: float) -> list[NodeProcess]:
    """Wait until the processes end; return those still running after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    running = list(processes)
    while running := [process for process in running if process.identity.is_alive]:
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_EVERY_S)
    return running


def ask_to_stop(process: NodeProcess) -> None:
    """Send SIGTERM, then SIGCONT: a paused process handles no signal before it is resumed."""
    process.identity.signal(signal.SIGTERM)
    process.identity.signal(signal.SIGCONT)
