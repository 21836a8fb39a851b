"""`moldau cluster start` while it runs: it starts the nodes, shows their output, reports those that die, and stops all.
`moldau start --cores` does the same, and also restarts the nodes that die.

It polls everything a few times a second: nodes may be killed, paused and restarted from other terminals, by
`moldau cluster` or by `kill`.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from moldau import __version__
from moldau.cli.cluster.directory import (
    DEFAULT_DIRECTORY,
    ClusterDirectory,
    Description,
    remove,
    write_json,
)
from moldau.cli.cluster.processes import LOOK_EVERY_S, NodeProcess, NodeState, spawn, this_process
from moldau.cli.cluster.restarts import Restarts
from moldau.cli.cluster.screen import ClosableScreen, Screen, Tail
from moldau.cli.cluster.stopping import stop_all, stop_one
from moldau.cli.connect import CommandFailed
from moldau.cli.secure_options import connect_lines
from moldau.local_cluster import HOST

SLOW_START_S: Final = 20.0
RENEWAL_CHECK_S: Final = 3600.0
WARNING: Final = "Warning: "


class Foreground:
    def __init__(
        self, directory: ClusterDirectory, description: Description, screen: Screen, password: str | None = None
    ) -> None:
        """`password` is that of the admin user, if it is new."""
        self._directory = directory
        self._description = description
        self._screen = ClosableScreen(screen)
        self._password = password
        self._began = self._renewal_checked = time.monotonic()
        self._processes: dict[int, NodeProcess] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._tails: dict[int, Tail] = {}
        self._states: dict[int, NodeState] = {}
        self._stop_requests = 0
        """Ctrl-C or SIGTERM, or a node that could not start: Ctrl-C after one kills the nodes."""
        self._is_hung_up = False
        self._restarts = Restarts()
        self._warnings: set[str] = set()
        """About settings; most are the same for all nodes, and shown once."""
        self._is_announced = False
        self._is_delay_reported = False
        self._status = 0

    @property
    def _is_one_broker(self) -> bool:
        """Whether the nodes are one broker for its users (`moldau start --cores`): dead nodes are then restarted."""
        return self._description.shared_port != 0

    def run(self) -> int:
        """Run until a signal; return the exit status. Raise the error of an output that was closed, once the nodes are
        stopped."""
        # Keep ignoring the signals that a background job or `nohup` ignores.
        stop_signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handled = [number for number in stop_signals if signal.getsignal(number) is not signal.SIG_IGN]
        previous_handlers = {number: signal.signal(number, self._on_signal) for number in handled}
        own_process = this_process()
        write_json(self._directory.foreground_path, {"pid": own_process.pid, "start_time": own_process.start_time})
        try:
            for node in self._description.nodes:
                remove(self._directory.restart_path(node.id))
                self._start(node.id)
            while not self._should_stop:
                self._poll()
                time.sleep(LOOK_EVERY_S)
        finally:
            self._stop()
            remove(self._directory.foreground_path)
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
        if self._screen.error is not None:
            raise self._screen.error
        return self._status

    @property
    def _should_stop(self) -> bool:
        return bool(self._stop_requests) or self._is_hung_up or self._screen.error is not None

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            # Not counted: a closing terminal may send it twice, and SIGTERM too. Neither is a second Ctrl-C.
            self._is_hung_up = True
            return
        self._stop_requests += 1
        if self._stop_requests > 1:
            for process in self._processes.values():
                process.identity.signal(signal.SIGKILL)

    def _start(self, node_id: int) -> None:
        if (ended := self._children.get(node_id)) is not None and ended.stdin is not None:
            ended.stdin.close()
        self._restarts.started(node_id, time.monotonic())
        process, child = spawn(self._directory, self._description, node_id, stops_with_us=self._is_one_broker)
        self._processes[node_id], self._children[node_id] = process, child
        self._tails[node_id] = Tail(process.log_path, process.log_position)
        self._states[node_id] = NodeState.STARTING

    def _start_again(self, node_id: int) -> None:
        """A node that cannot be started now, because memory or disk space is short, must not stop the others."""
        try:
            self._start(node_id)
        except OSError as error:
            retry = f"; `{_command(self._directory, f'restart {node_id}')}` tries again"
            if self._is_one_broker:
                retry = f"; the next attempt is in {self._restarts.ended(node_id, time.monotonic()):g} s"
            self._print(f"node {node_id} cannot be started: {error}{retry}")
        else:
            self._print(f"node {node_id} is restarted")

    # --- polling ------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        for node_id in list(self._processes):
            self._show_lines(node_id)
            if self._directory.restart_path(node_id).exists():
                self._restart(node_id)
            elif self._restarts.is_due(node_id, time.monotonic()):
                self._start_again(node_id)
            self._update_state(node_id)
        self._screen.show_states(self._states)
        if not self._is_announced:
            self._announce_or_wait()
        self._renew_hourly()

    def _renew_hourly(self) -> None:
        if time.monotonic() - self._renewal_checked < RENEWAL_CHECK_S:
            return
        self._renewal_checked = time.monotonic()
        try:
            self._directory.renew_if_due(self._description)
        except CommandFailed as failed:
            self._print(f"the nodes' certificate cannot be renewed: {failed.message}")

    def _show_lines(self, node_id: int) -> None:
        while lines := self._tails[node_id].read_lines():
            for line in lines:
                if line.startswith(WARNING):
                    if line in self._warnings:
                        continue
                    self._warnings.add(line)
                self._screen.node_line(node_id, line)

    def _update_state(self, node_id: int) -> None:
        previous = self._states[node_id]
        exit_status = self._children[node_id].poll()
        state = self._state(node_id, previous) if exit_status is None else NodeState.DOWN
        if state is previous:
            return
        self._states[node_id] = state
        if exit_status is not None:
            self._show_lines(node_id)
            self._report_end(node_id, exit_status, previous)
        elif previous is NodeState.PAUSED or state is NodeState.PAUSED or self._is_announced:
            self._print(f"node {node_id} is {state.value}")

    def _state(self, node_id: int, previous: NodeState) -> NodeState:
        """Return the node's state. A node that was ready stays ready: its log is not read again."""
        process = self._processes[node_id]
        state = process.state() if previous is not NodeState.UP else NodeState.UP
        return NodeState.PAUSED if state is NodeState.UP and process.is_paused else state

    def _report_end(self, node_id: int, status: int, previous: NodeState) -> None:
        reason = _end_reason(status)
        restart = _command(self._directory, f"restart {node_id}")
        if previous is NodeState.STARTING and not self._is_announced:
            self._print(f"node {node_id} {reason} before it was ready; its log is {self._directory.log_path(node_id)}")
            self._stop_requests += 1
            self._status = 1
        elif self._is_one_broker:
            delay_s = self._restarts.ended(node_id, time.monotonic())
            self._print(f"node {node_id} {reason}; it is restarted {f'in {delay_s:g} s' if delay_s else 'now'}")
        else:
            self._print(f"node {node_id} {reason}; `{restart}` restarts it")

    def _restart(self, node_id: int) -> None:
        process = self._processes[node_id]
        if self._children[node_id].poll() is None:
            self._print(f"node {node_id} is being stopped, to be restarted")
            stop_one(process, self._print)
            self._children[node_id].wait()
            self._states[node_id] = NodeState.DOWN
            self._show_lines(node_id)
        self._start_again(node_id)
        remove(self._directory.restart_path(node_id))

    # --- printing -----------------------------------------------------------------------------------------------

    def _announce_or_wait(self) -> None:
        waited_s = time.monotonic() - self._began
        nodes_not_ready = [node_id for node_id, state in self._states.items() if state is not NodeState.UP]
        if not nodes_not_ready:
            self._is_announced = True
            for line in announcement(self._directory, self._description, waited_s):
                self._screen.line(line)
            if self._description.is_secure:
                self._renew_lost_password()
                first_address = self._description.bootstrap_servers.partition(",")[0]
                address, client_file = first_address, self._directory.client_file
                for line in connect_lines(address, client_file, self._password, sys.stdout.isatty()):
                    self._screen.line(line)
            self._password = None
        elif waited_s > SLOW_START_S and not self._is_delay_reported:
            self._is_delay_reported = True
            names = ", ".join(map(str, nodes_not_ready))
            self._print(f"still waiting for node {names}; see the log {self._directory.log_path(nodes_not_ready[0])}")

    def _renew_lost_password(self) -> None:
        """Give the admin user a new password if client.properties is missing. Set it through the nodes' internal
        listener, as a single node does at its start."""
        if self._directory.client_file.exists():
            return
        from moldau.cli.admin_password import renew_admin_password
        from moldau.secure_setup.directory import SecureDirectory
        from moldau.secure_setup.problems import SetupFailed

        secured, node = SecureDirectory(self._directory.path), self._description.nodes[0]
        address = f"{HOST}:{node.internal_port}"
        try:
            self._password = renew_admin_password(address, secured.internal_client_properties(), secured)
        except SetupFailed as failed:
            self._print(str(failed))

    def _print(self, line: str) -> None:
        self._screen.line(f"moldau {'start' if self._is_one_broker else 'cluster'}: {line}")

    def _stop(self) -> None:
        running = [process for node_id, process in self._processes.items() if self._children[node_id].poll() is None]
        if running:
            self._print("stopping; press Ctrl-C again to kill the nodes")
        stopped_alone = stop_all(self._directory, self._description, running, self._print)
        for node_id, child in self._children.items():
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
            self._show_lines(node_id)
        statuses = {process.node_id: self._children[process.node_id].returncode for process in running}
        have_killed = -signal.SIGKILL in statuses.values() and (not stopped_alone or self._stop_requests > 1)
        if have_killed:
            self._status = 1
        # SIGTERM itself ends a node that has not come far enough to handle it.
        expected = (0, -signal.SIGTERM, -signal.SIGKILL) if have_killed else (0, -signal.SIGTERM)
        for node_id, status in statuses.items():
            if status not in expected:
                log_path = self._directory.log_path(node_id)
                self._print(f"node {node_id} {_end_reason(status)} while it stopped; its log is {log_path}")
                self._status = 1
        self._print("stopped; some nodes had to be killed" if have_killed else "stopped")


def _end_reason(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # most real-time signals have no name
        name = f"signal {-status}"
    return f"was killed ({name})"


def announcement(directory: ClusterDirectory, description: Description, seconds: float) -> list[str]:
    nodes = description.nodes
    if description.shared_port:
        return [broker_announcement(directory, description, seconds)]
    last = nodes[-1].id
    address = nodes[0].address
    if description.is_secure:
        address += f" --command-config {shlex.quote(str(directory.client_file))}"
    steps: Mapping[str, Any] = {
        f"moldau topic create orders -p 3 -r {min(3, len(nodes))} -b {address}": "a topic",
        _command(directory, "status"): "who is up and who leads the quorum",
        f"moldau cluster describe -b {address}": "who leads and follows what",
        _command(directory, f"kill {last}"): f"see it survive; `restart {last}` brings the node back",
    }
    width = max(map(len, steps))
    metrics = ", ".join(f"http://{HOST}:{node.metrics_port}/metrics" for node in nodes if node.metrics_port)
    count = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
    return [
        f"The cluster is ready after {seconds:.1f} s: {count}, data in {directory.path}. Stop with Ctrl-C.",
        f"  bootstrap servers: {description.bootstrap_servers}",
        *([f"  metrics: {metrics}"] if metrics else []),
        *(f"  {command.ljust(width)}   {what}" for command, what in steps.items()),
    ]


def broker_announcement(directory: ClusterDirectory, description: Description, seconds: float) -> str:
    """Return one line with all ports. `moldau start` says the same of a single node."""
    nodes, first = description.nodes, description.nodes[0]
    ports = f"{first.port}" if len(nodes) == 1 else f"{first.port}-{nodes[-1].port}"
    ids = f"node {first.id}" if len(nodes) == 1 else f"nodes {first.id}-{nodes[-1].id}"
    others = [f"controller on port {node.controller_port}" for node in nodes if node.controller_port]
    if first.internal_port:
        others.append(f"internal listeners on ports {', '.join(str(node.internal_port) for node in nodes)}")
    return (
        f"Moldau {__version__} is ready after {seconds:.1f} s: {description.bootstrap_servers} ("
        + ", ".join((f"{ids} on ports {ports}", *others, f"data in {directory.path}"))
        + "). Stop with Ctrl-C."
    )


def _command(directory: ClusterDirectory, words: str) -> str:
    data_dir_option = "" if str(directory.path) == DEFAULT_DIRECTORY else f" --data-dir {directory.path}"
    return f"moldau cluster {words}{data_dir_option}"
