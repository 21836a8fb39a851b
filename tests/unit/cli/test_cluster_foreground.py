"""How `moldau cluster start` stops its nodes: at signals, and when its output is closed."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harness.patience import wait_until

from moldau.cli.cluster import commands, processes
from moldau.cli.cluster import foreground as foreground_module
from moldau.cli.cluster.directory import ClusterDirectory, Description
from moldau.cli.cluster.foreground import Foreground
from moldau.cli.cluster.processes import NodeProcess, NodeState, ProcessIdentity
from moldau.cli.cluster.screen import ClosableScreen, JsonScreen, PlainScreen, Screen
from moldau.cli.cluster.screen import screen as open_screen
from moldau.cli.main import main
from moldau.local_cluster import NodeAddress
from moldau.platforms.processes import PROCESSES

WAITS = "import signal; print('runs', flush=True); signal.pause()"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
STOPS_AT_SIGTERM = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("runs", flush=True)
signal.sigwait([signal.SIGTERM])
sys.exit({status})
"""


class ScriptedScreen:
    """A screen that keeps its lines. `on_running` is called once the node runs, `on_line` after each line."""

    def __init__(self, on_running: Callable[[], None], on_line: Callable[[str], None] = lambda _: None) -> None:
        self.printed: list[str] = []
        self._on_running = on_running
        self._on_line = on_line
        self._is_running = False

    def line(self, text: str) -> None:
        self.printed.append(text)
        self._on_line(text)

    def node_line(self, node_id: int, text: str) -> None:
        self._is_running = True
        self.line(f"[{node_id}] {text}")

    def show_states(self, states: Mapping[int, NodeState]) -> None:
        if self._is_running:
            self._on_running()


def no_action() -> None:
    pass


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def at_stopping(number: int) -> Callable[[str], None]:
    """Return what sends a signal once the nodes are being stopped."""
    return lambda line: send(number) if "stopping" in line else None


def close_pipe(line: str) -> None:
    raise BrokenPipeError(32, "Broken pipe")


class Cluster:
    """A cluster in the foreground whose only node is a script."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, script: str, shared_port: int = 0) -> None:
        self._script = script
        self.spawn_errors: list[OSError | None] = []
        """For the next nodes: the error instead of a process."""
        self.directory = ClusterDirectory(path)
        self.directory.node_path(1).mkdir(parents=True)
        self._description = Description("abc", (NodeAddress(1, 23_092, 24_092),), shared_port=shared_port)
        self.child: subprocess.Popen[bytes] | None = None
        monkeypatch.setattr(foreground_module, "spawn", self._spawn)

    def _spawn(self, *_: object, **__: object) -> tuple[NodeProcess, subprocess.Popen[bytes]]:
        if self.spawn_errors and (error := self.spawn_errors.pop(0)) is not None:
            raise error
        log = self.directory.log_path(1)
        with log.open("wb") as output:
            self.child = subprocess.Popen([sys.executable, "-c", self._script], stdout=output, start_new_session=True)
        identity = ProcessIdentity(self.child.pid, PROCESSES.start_time(self.child.pid) or "")
        return NodeProcess(1, identity, log, 0), self.child

    def run(self, screen: Screen) -> int:
        return Foreground(self.directory, self._description, screen).run()

    @property
    def node_status(self) -> int | None:
        """The exit status of the node; None while it runs."""
        assert self.child is not None
        return self.child.poll()

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()


Start = Callable[..., Cluster]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    # A test run in the background may have inherited these signals as ignored.
    handlers = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)}
    clusters: list[Cluster] = []

    def begin(script: str, shared_port: int = 0) -> Cluster:
        clusters.append(Cluster(tmp_path, monkeypatch, script, shared_port))
        return clusters[-1]

    yield begin
    for cluster in clusters:
        cluster.kill()
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_nodes_are_stopped_when_the_output_is_closed(start: Start) -> None:
    cluster = start(STOPS_AT_SIGTERM.format(status=0))
    with pytest.raises(BrokenPipeError):
        cluster.run(ScriptedScreen(no_action, close_pipe))
    assert cluster.node_status == 0
    assert not cluster.directory.foreground_path.exists()


def test_nodes_are_stopped_although_the_stop_message_cannot_be_printed(start: Start) -> None:
    cluster = start(STOPS_AT_SIGTERM.format(status=0))
    lost = OSError(5, "Input/output error")

    def fail_at_stopping(line: str) -> None:
        if "stopping" in line:
            raise lost

    screen = ScriptedScreen(lambda: send(signal.SIGHUP), fail_at_stopping)
    with pytest.raises(OSError, match="Input/output error"):
        cluster.run(screen)
    assert cluster.node_status == 0
    assert "stopping" in screen.printed[-1]


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGHUP, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM), (signal.SIGINT, signal.SIGHUP)],
)
def test_a_closed_terminal_does_not_count_as_a_second_ctrl_c(start: Start, first: int, second: int) -> None:
    cluster = start(STOPS_AT_SIGTERM.format(status=0))
    screen = ScriptedScreen(lambda: send(first), at_stopping(second))
    assert cluster.run(screen) == 0
    assert cluster.node_status == 0
    assert screen.printed[-1] == "moldau cluster: stopped"


def test_a_second_ctrl_c_kills_the_nodes(start: Start) -> None:
    cluster = start(IGNORES_SIGTERM)
    screen = ScriptedScreen(lambda: send(signal.SIGINT), at_stopping(signal.SIGINT))
    assert cluster.run(screen) == 1
    assert cluster.node_status == -signal.SIGKILL
    assert screen.printed[-1] == "moldau cluster: stopped; some nodes had to be killed"


def test_a_node_that_fails_while_it_stops_is_reported(start: Start) -> None:
    cluster = start(STOPS_AT_SIGTERM.format(status=3))
    screen = ScriptedScreen(lambda: send(signal.SIGINT))
    assert cluster.run(screen) == 1
    assert screen.printed[-2:] == [
        f"moldau cluster: node 1 ended with status 3 while it stopped; its log is {cluster.directory.log_path(1)}",
        "moldau cluster: stopped",
    ]


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="this system has no real-time signals")
def test_a_signal_without_a_name_is_reported_by_its_number(start: Start) -> None:
    number = signal.SIGRTMIN + 1
    cluster = start(WAITS)

    def end_node() -> None:
        assert cluster.child is not None
        if cluster.node_status is None:
            cluster.child.send_signal(number)
            wait_until(lambda: cluster.node_status is not None, "the node ends")

    screen = ScriptedScreen(end_node)
    assert cluster.run(screen) == 1
    assert f"moldau cluster: node 1 was killed (signal {number}) before it was ready" in screen.printed[1]


@pytest.mark.parametrize(("words", "kind"), [([], PlainScreen), (["--log-format", "json"], JsonScreen)])
def test_the_log_format_applies_to_the_command_itself(
    words: list[str], kind: type[Screen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screens: list[Screen] = []

    class KeepsScreen:
        def __init__(self, directory: object, description: object, screen: Screen, password: object) -> None:
            screens.append(screen)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(foreground_module, "Foreground", KeepsScreen)
    monkeypatch.setattr(commands, "check_ports_are_free", lambda description: None)
    result = CliRunner().invoke(main, ["cluster", "start", "-d", str(tmp_path / "cluster"), *words])
    assert result.exit_code == 0, result.stderr
    assert [type(each) for each in screens] == [kind]


def test_a_line_lost_on_a_full_disk_stops_no_node(start: Start) -> None:
    cluster = start(STOPS_AT_SIGTERM.format(status=0))

    def fail_once(line: str) -> None:
        if len(screen.printed) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    screen = ScriptedScreen(lambda: send(signal.SIGINT), fail_once)
    assert cluster.run(screen) == 0
    assert len(screen.printed) > 1


IS_READY = "print('Node 1 is ready: here', flush=True); import signal; signal.pause()"


def test_a_failed_restart_of_a_node_is_retried(start: Start) -> None:
    """The lack of memory that killed it may also keep its next process from starting."""
    cluster = start(IS_READY, shared_port=23_000)
    cluster.spawn_errors = [None, OSError(errno.ENOMEM, "Cannot allocate memory")]

    def act(line: str) -> None:
        if "is ready after" in line:
            cluster.kill()
        elif "is restarted" in line and "node 1 was killed" not in line and "cannot" not in line:
            send(signal.SIGINT)

    screen = ScriptedScreen(no_action, act)
    assert cluster.run(screen) == 0
    lines = [line.removeprefix("moldau start: ") for line in screen.printed if line.startswith("moldau start: node")]
    assert lines[:3] == [  # it may be up again before the signal comes
        "node 1 was killed (SIGKILL); it is restarted now",
        "node 1 cannot be started: [Errno 12] Cannot allocate memory; the next attempt is in 1 s",
        "node 1 is restarted",
    ]


def test_a_failed_restart_on_request_does_not_stop_the_cluster(start: Start) -> None:
    cluster = start(IS_READY)
    cluster.spawn_errors = [None, OSError(errno.ENOSPC, "No space left on device")]
    request = cluster.directory.restart_path(1)

    def act(line: str) -> None:
        if "The cluster is ready" in line:
            request.touch()
        elif "cannot be started" in line:
            send(signal.SIGINT)

    screen = ScriptedScreen(no_action, act)
    assert cluster.run(screen) == 0
    lines = [line for line in screen.printed if line.startswith("moldau cluster: node")]
    assert len(lines) == 2, "the end of the stopped node is not reported again"
    assert lines[1].startswith("moldau cluster: node 1 cannot be started: [Errno 28] No space left on device; `moldau")
    assert not request.exists()


def test_a_process_that_cannot_be_recorded_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`moldau cluster stop` could not find it."""
    directory, children = ClusterDirectory(tmp_path), []
    directory.node_path(1).mkdir(parents=True)

    def begin(command: object, **options: Any) -> subprocess.Popen[bytes]:
        children.append(popen([sys.executable, "-c", WAITS], **options))
        return children[0]

    def refuse(path: Path, content: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    popen = subprocess.Popen
    monkeypatch.setattr(processes.subprocess, "Popen", begin)
    monkeypatch.setattr(processes, "write_json", refuse)
    with pytest.raises(OSError, match="No space left"):
        processes.spawn(directory, Description("abc", (NodeAddress(1, 23_092, 24_092),)), 1)
    (child,) = children
    assert child.poll() == -signal.SIGKILL


def test_a_line_that_the_output_cannot_encode_stops_no_node(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal without UTF-8, and a node that logs the name of a client."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1", write_through=True))
    cluster = start("print('caf\u00e9 \u2192', flush=True); " + STOPS_AT_SIGTERM.format(status=0))

    class Signalling(PlainScreen):
        def show_states(self, states: Mapping[int, NodeState]) -> None:
            if b"runs" in written.getvalue():
                send(signal.SIGINT)

    assert cluster.run(Signalling()) == 0
    assert b"[1] caf\xe9 \\u2192" in written.getvalue()


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("encoding", "shown"), [("latin-1", b"caf\xe9 \\u2192\n"), ("utf-8", "caf\u00e9 \u2192\n".encode())]
)
def test_a_terminal_shows_what_it_cannot_encode_as_escapes(
    encoding: str, shown: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", Terminal(written, encoding=encoding, write_through=True))
    with open_screen() as on_terminal:
        screen = ClosableScreen(on_terminal)
        screen.show_states({1: NodeState.UP})
        screen.line("caf\u00e9 \u2192")
    assert shown in written.getvalue().replace(b"\r", b"")


def test_json_lines_hold_every_character_whatever_the_output_can_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1", write_through=True))
    with open_screen(is_json=True) as screen:
        ClosableScreen(screen).node_line(1, "caf\u00e9 \u2192")
    assert json.loads(written.getvalue())["message"] == "caf\u00e9 \u2192"
