"""`moldau cluster start` and related commands, as users run them: real processes, killed and restarted."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from clients import CLIENTS, Message
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until

from moldau.cli.cluster.directory import ClusterDirectory, is_free
from moldau.cli.cluster.processes import NodeState, spawn
from moldau.cli.main import main
from moldau.platforms.processes import PROCESSES

pytestmark = pytest.mark.moldau_only

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


def free_base_port(count: int) -> int:
    """Return the first of `count` consecutive free ports whose ports a thousand above are free too."""
    while True:
        base = random.randrange(20_000, 31_000)
        wanted = [*range(base, base + count), *range(base + 1000, base + 1000 + count)]
        if all(map(is_free, wanted)):
            return base


class RunningCluster:
    """`moldau cluster start` in a process of its own, and its output."""

    def __init__(self, data_dir: Path, nodes: int | None = None, *words: str) -> None:
        base = ["--base-port", str(free_base_port(nodes))] if nodes else []
        count = ["--nodes", str(nodes)] if nodes else []
        self._begin(data_dir, ["cluster", "start", "-d", str(data_dir), *count, *base, *words])

    def _begin(self, data_dir: Path, words: list[str]) -> None:
        self.data_dir = data_dir
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moldau", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.printed: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def line_with(self, words: str) -> str:
        """Return the next line that contains these words, skipping others."""
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"{words!r} was not printed, only:\n" + "\n".join(self.printed)) from None
            self.printed.append(line)
            if words in line:
                return line

    def run(self, *words: str) -> CommandResult:
        return moldau(*words, "-d", str(self.data_dir))

    def states(self) -> dict[int, dict[str, Any]]:
        rows = json.loads(self.run("status", "--format", "json").stdout)
        return {row["node"]: row for row in rows}

    def wait_for_end(self) -> int:
        status = self.process.wait(PATIENCE_S)
        self._reader.join()
        while not self._lines.empty():
            self.printed.append(self._lines.get())
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def kill_what_is_left(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if (self.data_dir / "cluster.json").exists():
            for pid in pids(self.data_dir):
                if lives(pid):
                    os.kill(pid, signal.SIGKILL)
        self.wait_for_end()


class CommandResult(NamedTuple):
    status: int
    stdout: str
    stderr: str


def moldau(*words: str) -> CommandResult:
    """Run the command in this process, which is quicker. But a node that it starts must not be a child of this process,
    which would not reap it after its end."""
    if words[0] == "restart":
        command = [sys.executable, "-m", "moldau", "cluster", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        return CommandResult(done.returncode, done.stdout, done.stderr)
    result = CliRunner().invoke(main, ["cluster", *words])
    return CommandResult(result.exit_code, result.stdout, result.stderr)


def pids(data_dir: Path) -> list[int]:
    return [int(json.loads(file.read_text())["pid"]) for file in sorted(data_dir.glob("node-*/process.json"))]


def lives(pid: int) -> bool:
    return PROCESSES.start_time(pid) is not None


def was_left_cleanly(data_dir: Path, node_id: int) -> bool:
    return (data_dir / f"node-{node_id}" / "data" / CLEAN_SHUTDOWN).exists()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = RunningCluster(tmp_path_factory.mktemp("cluster") / "three", 3)
    try:
        running.line_with("The cluster is ready after")
        yield running
    finally:
        running.kill_what_is_left()


@pytest.fixture
def started_clusters(tmp_path: Path) -> Iterator[list[RunningCluster]]:
    """Stop the clusters that a test adds to this list when it ends."""
    started: list[RunningCluster] = []
    yield started
    for running in started:
        running.kill_what_is_left()


def bootstrap_of(running: RunningCluster) -> str:
    nodes = json.loads((running.data_dir / "cluster.json").read_text())["nodes"]
    return ",".join(f"127.0.0.1:{node['port']}" for node in nodes)


def test_three_nodes_announce_themselves_and_one_leads(three: RunningCluster) -> None:
    assert three.line_with("bootstrap servers: ").endswith(bootstrap_of(three))
    ready = [line for line in three.printed if " is ready: " in line]
    assert sorted(line[:3] for line in ready) == ["[1]", "[2]", "[3]"]
    quorum = ["follower", "follower", "leader"]
    wait_until(lambda: sorted(row["quorum"] for row in three.states().values()) == quorum, "one node leads")
    states = three.states()
    assert [row["state"] for row in states.values()] == ["up", "up", "up"]
    assert {row["pid"] for row in states.values()} == set(pids(three.data_dir))
    assert all(row["memory"] > 10 << 20 for row in states.values())
    assert "127.0.0.1" in three.run("status").stdout.splitlines()[1]


def test_a_killed_node_is_reported_and_restarted_on_request_by_the_foreground_process(three: RunningCluster) -> None:
    bootstrap = bootstrap_of(three)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(PATIENCE_S)
    CLIENTS["confluent"].produce(bootstrap, "orders", [Message(None, b"before")])
    leader = admin.list_topics("orders", timeout=PATIENCE_S).topics["orders"].partitions[0].leader
    before = three.states()[leader]["pid"]

    assert three.run("kill", str(leader)).stdout.startswith(f"node {leader} is killed")
    assert three.line_with(f"node {leader} was killed").endswith("restarts it")
    assert three.states()[leader]["state"] == "down"
    CLIENTS["confluent"].produce(bootstrap, "orders", [Message(None, b"meanwhile")])
    again = three.run("kill", str(leader))
    assert (again.status, again.stdout) == (1, "")
    assert again.stderr == f"moldau: node {leader} is not running; `moldau cluster restart {leader}` starts it\n"

    restarted = three.run("restart", str(leader))
    assert restarted.stdout.startswith(f"node {leader} is up again after"), restarted.stderr
    now = three.states()[leader]
    assert (now["state"], now["pid"] != before) == ("up", True)
    if Path("/proc/self").exists():
        parent = Path(f"/proc/{now['pid']}/stat").read_text().rpartition(")")[2].split()[1]
        assert int(parent) == three.process.pid
    found = CLIENTS["confluent"].consume(bootstrap, "orders", 2)
    assert [message.value for message in found] == [b"before", b"meanwhile"]


def test_restart_stops_a_running_node_first(three: RunningCluster) -> None:
    before = three.states()[2]["pid"]
    assert three.run("restart", "2").status == 0
    assert not lives(before)
    assert three.states()[2]["pid"] != before
    three.line_with("node 2 is being stopped, to be restarted")
    three.line_with("node 2 is up")


def test_a_node_is_paused_and_resumed(three: RunningCluster) -> None:
    assert three.run("pause", "1").status == 0
    assert three.states()[1]["state"] == "paused"
    three.line_with("node 1 is paused")
    assert three.run("resume", "1").status == 0
    three.line_with("node 1 is up")
    assert three.states()[1]["state"] == "up"


def test_a_running_cluster_is_not_started_twice(three: RunningCluster) -> None:
    second = three.run("start")
    assert second.status == 1
    assert f"is running already (process {three.process.pid}); `moldau cluster stop` stops it" in second.stderr


def test_stop_from_another_terminal_shuts_the_nodes_down_cleanly(three: RunningCluster) -> None:
    """This test comes last, because it stops the cluster."""
    running = pids(three.data_dir)
    assert three.run("stop").stdout == "stopped\n"
    assert three.wait_for_end() == 0
    assert three.printed[-1] == "moldau cluster: stopped"
    assert not any(map(lives, running))
    assert all(was_left_cleanly(three.data_dir, node_id) for node_id in (1, 2, 3))
    assert [row["state"] for row in three.states().values()] == ["down"] * 3
    assert "is not running" in three.run("stop").stderr


def test_topics_survive_ctrl_c_and_nodes_survive_a_killed_foreground_process(
    tmp_path: Path, started_clusters: list[RunningCluster]
) -> None:
    started_clusters.append(first := RunningCluster(tmp_path / "c", 1, "-o", "num.partitions=4"))
    first.line_with("The cluster is ready")
    admin = AdminClient({"bootstrap.servers": bootstrap_of(first)})
    admin.create_topics([NewTopic("orders")])["orders"].result(PATIENCE_S)
    first.process.send_signal(signal.SIGINT)
    assert first.wait_for_end() == 0
    assert was_left_cleanly(tmp_path / "c", 1)
    assert not any(map(lives, pids(tmp_path / "c")))

    started_clusters.append(second := RunningCluster(tmp_path / "c"))
    second.line_with("The cluster is ready")
    known = AdminClient({"bootstrap.servers": bootstrap_of(second)}).list_topics(timeout=PATIENCE_S).topics
    assert len(known["orders"].partitions) == 4
    second.process.kill()
    second.wait_for_end()
    assert second.states()[1]["state"] == "up"
    refused = second.run("start")
    assert "is running; `moldau cluster stop` stops it" in refused.stderr
    (old,) = pids(tmp_path / "c")
    assert "node 1 is up again" in second.run("restart", "1").stdout
    (new,) = pids(tmp_path / "c")
    assert (old != new, lives(old), lives(new)) == (True, False, True)
    assert second.run("stop").stdout == "stopped\n"
    assert not lives(new)
    assert was_left_cleanly(tmp_path / "c", 1)


def test_a_node_that_cannot_start_is_reported_with_its_reason(
    tmp_path: Path, started_clusters: list[RunningCluster]
) -> None:
    started_clusters.append(running := RunningCluster(tmp_path / "c", 1, "-o", "num.partitions=none"))
    assert running.wait_for_end() == 1
    shown = "\n".join(running.printed)
    assert "Invalid value none for configuration num.partitions" in shown
    assert "node 1 ended with status 1 before it was ready; its log is" in shown
    assert running.printed[-1] == "moldau cluster: stopped"


def test_a_node_that_waits_for_its_quorum_can_be_terminated(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "c")
    description = directory.plan(3, free_base_port(3), {}, bytes(16))
    directory.lay_out(description)
    process, child = spawn(directory, description, 1)
    try:
        wait_until(lambda: not is_free(description.node(1).controller_port), "the node listens")
        assert process.state() is NodeState.STARTING
        child.terminate()
        assert child.wait(PATIENCE_S) == 0
    finally:
        child.kill()
        child.wait()
