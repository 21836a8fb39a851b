"""`moldau cluster start` while it runs: it starts the nodes, shows what they say, tells who died, and stops them all.

It looks at everything a few times a second instead of being told: nodes may be killed, paused and started again from
other terminals, by `moldau cluster` or by `kill`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Final

from moldau.cli.cluster.directory import (
    DEFAULT_DIRECTORY,
    ClusterDirectory,
    Description,
    remove,
    write_json,
)
from moldau.cli.cluster.processes import LOOK_EVERY_S, NodeProcess, NodeState, spawn, this_process
from moldau.cli.cluster.screen import Screen, Tail
from moldau.cli.cluster.stopping import stop_all, stop_one

SLOW_START_S: Final = 20.0


class Foreground:
    def __init__(self, directory: ClusterDirectory, description: Description, screen: Screen) -> None:
        self._directory = directory
        self._description = description
        self._screen = screen
        self._processes: dict[int, NodeProcess] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._tails: dict[int, Tail] = {}
        self._states: dict[int, NodeState] = {}
        self._told_to_stop = 0
        self._is_announced = False
        self._is_slow_told = False
        self._status = 0

    def run(self) -> int:
        """Until a signal; gives the exit status."""
        # What a script in the background or `nohup` was told to ignore, it goes on ignoring.
        stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heeded = [number for number in stops if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in heeded}
        us = this_process()
        write_json(self._directory.foreground_path, {"pid": us.pid, "born": us.time})
        try:
            self._began = time.monotonic()
            for node in self._description.nodes:
                remove(self._directory.restart_path(node.id))
                self._start(node.id)
            while not self._told_to_stop:
                self._look()
                time.sleep(LOOK_EVERY_S)
        finally:
            self._stop()
            remove(self._directory.foreground_path)
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._status

    def _note(self, number: int, _frame: object) -> None:
        self._told_to_stop += 1
        if self._told_to_stop > 1:
            for process in self._processes.values():
                process.born.signal(signal.SIGKILL)

    def _start(self, node_id: int) -> None:
        process, child = spawn(self._directory, self._description, node_id)
        self._processes[node_id], self._children[node_id] = process, child
        self._tails[node_id] = Tail(process.log_path, process.log_position)
        self._states[node_id] = NodeState.STARTING

    # --- looking ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        for node_id in list(self._processes):
            self._show_lines(node_id)
            if self._directory.restart_path(node_id).exists():
                self._restart(node_id)
            self._look_at(node_id)
        self._screen.states(self._states)
        if not self._is_announced:
            self._announce_or_wait()

    def _show_lines(self, node_id: int) -> None:
        for line in self._tails[node_id].lines():
            self._screen.line(f"[{node_id}] {line}")

    def _look_at(self, node_id: int) -> None:
        was = self._states[node_id]
        ended = self._children[node_id].poll()
        state = self._state(node_id, was) if ended is None else NodeState.DOWN
        if state is was:
            return
        self._states[node_id] = state
        if ended is not None:
            self._show_lines(node_id)
            self._tell_of_end(node_id, ended, was)
        elif was is NodeState.PAUSED or state is NodeState.PAUSED or self._is_announced:
            self._tell(f"node {node_id} is {state.value}")

    def _state(self, node_id: int, was: NodeState) -> NodeState:
        """A node that was ready stays so: its log is not read again each time."""
        process = self._processes[node_id]
        state = process.state() if was is not NodeState.UP else NodeState.UP
        return NodeState.PAUSED if state is NodeState.UP and process.is_paused else state

    def _tell_of_end(self, node_id: int, status: int, was: NodeState) -> None:
        how = f"was killed ({signal.Signals(-status).name})" if status < 0 else f"ended with status {status}"
        again = _command(self._directory, f"restart {node_id}")
        if was is NodeState.STARTING and not self._is_announced:
            self._tell(f"node {node_id} {how} before it was ready; its log is {self._directory.log_path(node_id)}")
            self._told_to_stop += 1
            self._status = 1
        else:
            self._tell(f"node {node_id} {how}; `{again}` brings it back")

    def _restart(self, node_id: int) -> None:
        process = self._processes[node_id]
        if self._children[node_id].poll() is None:
            self._tell(f"node {node_id} is stopped, to be started again")
            stop_one(process, self._tell)
            self._children[node_id].wait()
            self._show_lines(node_id)
        self._start(node_id)
        remove(self._directory.restart_path(node_id))
        self._tell(f"node {node_id} is started again")

    # --- telling ------------------------------------------------------------------------------------------------

    def _announce_or_wait(self) -> None:
        waited_s = time.monotonic() - self._began
        late = [node_id for node_id, state in self._states.items() if state is not NodeState.UP]
        if not late:
            self._is_announced = True
            for line in announcement(self._directory, self._description, waited_s):
                self._screen.line(line)
        elif waited_s > SLOW_START_S and not self._is_slow_told:
            self._is_slow_told = True
            names = ", ".join(map(str, late))
            self._tell(f"still waiting for node {names}; what it does is in {self._directory.log_path(late[0])}")

    def _tell(self, line: str) -> None:
        self._screen.line(f"moldau cluster: {line}")

    def _stop(self) -> None:
        running = [process for node_id, process in self._processes.items() if self._children[node_id].poll() is None]
        if running:
            self._tell("stopping; Ctrl-C once more kills")
        if not stop_all(self._description, running, self._tell):
            self._status = 1
        for node_id, child in self._children.items():
            child.wait()
            self._show_lines(node_id)
        self._tell("stopped" if not self._status else "stopped, not in order")


def announcement(directory: ClusterDirectory, description: Description, seconds: float) -> list[str]:
    nodes = description.nodes
    last = nodes[-1].id
    steps: Mapping[str, Any] = {
        f"moldau topic create orders -p 3 -r {min(3, len(nodes))} -b {nodes[0].address}": "a topic",
        _command(directory, "status"): "who is up and who leads the quorum",
        f"moldau cluster describe -b {nodes[0].address}": "who leads and follows what",
        _command(directory, f"kill {last}"): f"see it survive; `restart {last}` brings the node back",
    }
    width = max(map(len, steps))
    count = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
    return [
        f"The cluster is ready after {seconds:.1f} s: {count}, data in {directory.path}. Stop with Ctrl-C.",
        f"  bootstrap servers: {description.bootstrap_servers}",
        *(f"  {command.ljust(width)}   {what}" for command, what in steps.items()),
    ]


def _command(directory: ClusterDirectory, words: str) -> str:
    where = "" if str(directory.path) == DEFAULT_DIRECTORY else f" --data-dir {directory.path}"
    return f"moldau cluster {words}{where}"
