"""The directory of `moldau cluster`: its files, options that are refused, and which process a pid belongs to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness.patience import wait_until

from moldau.cli.cluster import directory as cluster_directory
from moldau.cli.cluster import processes as cluster_processes
from moldau.cli.cluster.directory import ClusterDirectory, Description, is_free
from moldau.cli.cluster.processes import NodeProcess, NodeState, ProcessIdentity, live_process
from moldau.cli.cluster.screen import Tail
from moldau.cli.connect import CommandFailed
from moldau.cli.main import main
from moldau.platforms import replaced_files
from moldau.platforms.addresses import is_own_host
from moldau.platforms.processes import PROCESSES
from moldau.settings import Settings, load

NEW_ID = bytes(range(16))
BASE_PORT = 15_092


def moldau(*words: str) -> Result:
    return CliRunner().invoke(main, ["cluster", *words])


def laid_out(path: Path, nodes: int = 3, base_port: int = BASE_PORT) -> tuple[ClusterDirectory, Description]:
    directory = ClusterDirectory(path)
    description = directory.plan(nodes, base_port, {}, NEW_ID)
    directory.lay_out(description)
    return directory, description


def settings_of(directory: ClusterDirectory, node_id: int) -> Settings:
    return load(str(directory.properties_path(node_id)), {})


def test_each_node_gets_the_settings_that_kafka_needs(tmp_path: Path) -> None:
    directory, description = laid_out(tmp_path / "c")
    assert [node.port for node in description.nodes] == [BASE_PORT, BASE_PORT + 1, BASE_PORT + 2]
    node_settings = [settings_of(directory, node_id) for node_id in (1, 2, 3)]
    assert [each.node_id for each in node_settings] == [1, 2, 3]
    assert len({each.properties["controller.quorum.voters"] for each in node_settings}) == 1
    assert len({each.log_dirs for each in node_settings}) == 3
    assert node_settings[0].properties["min.insync.replicas"] == "2"
    assert node_settings[0].default_replication_factor == 3
    assert not node_settings[0].warnings
    voters = node_settings[0].properties["controller.quorum.voters"].split(",")
    for each, voter in zip(node_settings, voters, strict=True):
        (listener,) = each.controller_listeners
        assert voter == f"{each.node_id}@{listener.address}"


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (5, 3, "2")])
def test_the_replication_factor_is_at_most_the_number_of_nodes(
    tmp_path: Path, nodes: int, replicas: int, in_sync: str
) -> None:
    directory, _ = laid_out(tmp_path / "c", nodes)
    settings = settings_of(directory, nodes)
    assert settings.default_replication_factor == settings.offsets_topic_replication_factor == replicas
    assert settings.properties["min.insync.replicas"] == in_sync


def test_a_busy_controller_port_is_skipped(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", BASE_PORT + 1001)):
        _, description = laid_out(tmp_path / "c")
    ports = [node.controller_port for node in description.nodes]
    assert BASE_PORT + 1001 not in ports
    assert len(set(ports)) == 3


def test_a_directory_keeps_its_cluster_and_edited_properties(tmp_path: Path) -> None:
    directory, first = laid_out(tmp_path / "c")
    with directory.properties_path(2).open("a") as file:
        file.write("num.partitions=7\n")
    again = directory.plan(None, None, {"log.retention.hours": "1"}, b"another id of 16")
    directory.lay_out(again)
    assert (again.cluster_id, again.nodes) == (first.cluster_id, first.nodes)
    assert settings_of(directory, 2).num_partitions == 7
    assert directory.description().overrides == {"log.retention.hours": "1"}


def test_nothing_is_written_if_a_port_is_busy(tmp_path: Path) -> None:
    place = tmp_path / "c"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = moldau("start", "--nodes", "1", "-d", str(place), "--base-port", str(port))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"moldau: port {port}, which node 1 needs, is in use; stop what listens there, or")
    assert not place.exists()


def test_options_that_contradict_the_directory_are_refused(tmp_path: Path) -> None:
    laid_out(tmp_path / "c")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "meta.properties").write_text("version=1\n")
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "c")
    expected = {
        (
            "start",
            "-n",
            "5",
            "-d",
            place,
        ): "holds a cluster of 3 nodes; leave --nodes out, or choose another --data-dir",
        ("start", "-p", "9092", "-d", place): f"has its ports from {BASE_PORT} on; leave --base-port out",
        ("start", "-d", str(tmp_path / "other")): "is not empty and holds no cluster",
        ("start", "-d", str(tmp_path / "a,b")): "contains a comma",
        ("start", "-d", str(tmp_path / "new"), "-p", "65534"): "leaves no room for 3 ports",
        ("start", "-d", str(tmp_path / "new"), "-o", "nonsense"): "nonsense",
        ("status", "-d", str(tmp_path / "none")): "there is no cluster in",
        ("kill", "4", "-d", place): "there is no node 4 in this cluster; its nodes are 1, 2, 3",
        ("kill", "1", "-d", place): "node 1 is not running; `moldau cluster restart 1` starts it",
        ("stop", "-d", place): "is not running",
    }
    for words, line in expected.items():
        result = moldau(*words)
        assert result.exit_code == 1, words
        assert line in result.stderr, words
        assert result.stderr.count("\n") == 1, words
    assert moldau("start", "-d", str(tmp_path / "file")).exit_code != 0


def test_the_status_of_a_stopped_cluster(tmp_path: Path) -> None:
    laid_out(tmp_path / "c", nodes=2)
    rows = json.loads(moldau("status", "-d", str(tmp_path / "c"), "--format", "json").stdout)
    assert [(row["node"], row["pid"], row["state"], row["quorum"]) for row in rows] == [
        (1, None, "down", None),
        (2, None, "down", None),
    ]


def test_a_reused_pid_is_not_our_process(tmp_path: Path) -> None:
    directory, _ = laid_out(tmp_path / "c")
    content = {"pid": os.getpid(), "start_time": "long ago", "log_position": 0}
    cluster_directory.write_json(directory.process_path(1), content)
    assert live_process(directory, 1) is None
    assert moldau("kill", "1", "-d", str(directory.path)).exit_code == 1  # and we are still here
    cluster_directory.write_json(directory.process_path(1), content | {"start_time": PROCESSES.start_time(os.getpid())})
    assert live_process(directory, 1) is not None


def test_a_process_without_a_start_time_counts_as_ended(tmp_path: Path) -> None:
    directory, _ = laid_out(tmp_path / "c")
    cluster_directory.write_json(directory.process_path(1), {"pid": os.getpid(), "log_position": 0})
    assert live_process(directory, 1) is None


def test_states_of_a_process(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("of an older run: Moldau is ready: there\n")
    position = log.stat().st_size
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = NodeProcess(1, ProcessIdentity(child.pid, PROCESSES.start_time(child.pid) or ""), log, position)
        try:
            assert process.state() is NodeState.STARTING
            with log.open("a") as file:
                file.write("Moldau 1.0 is ready: here\n")
            assert process.state() is NodeState.UP
            process.identity.signal(signal.SIGSTOP)
            wait_until(lambda: process.state() is NodeState.PAUSED, "it is paused")
            process.identity.signal(signal.SIGCONT)
            wait_until(lambda: process.state() is NodeState.UP, "it is up again")
        finally:
            child.kill()
        assert not cluster_processes.wait_for_end([process], 5)
        assert process.state() is NodeState.DOWN, "a zombie process counts as ended"
    assert not process.identity.signal(0)
    assert (PROCESSES.memory_bytes(os.getpid()) or 0) > 10 << 20


def test_nodes_do_not_inherit_kafka_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NODE_ID", "9")
    monkeypatch.setenv("CLUSTER_ID", "other")
    environment = cluster_processes.node_environment(Description("ours", ()))
    assert "KAFKA_NODE_ID" not in environment
    assert environment["CLUSTER_ID"] == "ours"


def test_a_log_is_followed_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = Tail(log, 3)
    assert tail.read_lines() == []
    log.write_bytes(b"old" + "one\ntwö".encode()[:-1])
    assert tail.read_lines() == ["one"]
    with log.open("ab") as file:
        file.write("ö".encode()[1:] + b"\n\nthree")
    assert tail.read_lines() == ["twö", ""]


@pytest.mark.parametrize("content", ['{"nodes": 3}', '{"cluster_id": "c", "nodes": [], "overrides": {}}'])
def test_an_invalid_cluster_description_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    with pytest.raises(CommandFailed, match="not a valid cluster description"):
        ClusterDirectory(tmp_path).description()


def test_log_options_are_kept_for_a_restart(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "cluster")
    directory.lay_out(directory.plan(1, 19_092, {}, bytes(16), {"MOLDAU_LOG_FORMAT": "json"}))
    assert directory.description().log_variables == {"MOLDAU_LOG_FORMAT": "json"}


def test_the_description_of_an_older_version_is_read(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.lay_out(directory.plan(1, 19_092, {}, bytes(16)))
    content = json.loads((tmp_path / "cluster.json").read_text())
    del content["log_variables"]
    (tmp_path / "cluster.json").write_text(json.dumps(content))
    assert directory.description().log_variables == {}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 on its loopback interface")
def test_a_port_in_use_on_another_interface_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port, "127.0.0.1")
        assert not is_free(port, "")
        assert is_free(port, "127.0.0.2")


@pytest.mark.skipif(not is_own_host("::1"), reason="this machine has no IPv6")
def test_a_port_of_a_name_that_has_only_an_ipv6_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest, **kind: resolve("::1", *rest, **kind))
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert not is_free(server.getsockname()[1], "broker.test")


def test_the_description_and_the_settings_survive_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cluster.json the data cannot be used. Some file systems rename a file before its bytes are on disk: it is
    empty after a power loss."""
    synced: list[str] = []

    def sync_file(fd: int) -> None:
        (path,) = tmp_path.rglob("*.tmp")
        assert path.read_text(), "the bytes are written before they are synced"
        synced.append(path.name.removeprefix(".").removesuffix(".tmp").rpartition(".")[0])

    def sync_directory(path: str) -> None:
        assert not list(Path(path).glob("*.tmp")), "the name is synced after the file was renamed"
        synced.append(Path(path).name)

    monkeypatch.setattr(replaced_files, "sync_file", sync_file)
    monkeypatch.setattr(replaced_files, "sync_directory", sync_directory)
    directory = ClusterDirectory(tmp_path / "cluster")
    directory.lay_out(directory.plan(1, BASE_PORT, {}, NEW_ID))
    assert synced == ["server.properties", "node-1", "cluster.json", "cluster"]
