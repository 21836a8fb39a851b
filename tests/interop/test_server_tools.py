"""kafka-storage, kafka-server-start, kafka-server-stop and `moldau start`, as users run them.

Messages and exit statuses of kafka-storage are those of Apache Kafka 4.3.1's tool. No broker is shared: each test that
needs a server starts its own.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S, wait_until

from moldau import __version__
from moldau.base.ids import uuid_from_text
from moldau.base.setting_sources import SettingsError
from moldau.cli.kafka import server_start, server_stop, storage
from moldau.cli.kafka.server_stop import as_server
from moldau.log import meta_properties
from moldau.platforms.processes import PROCESSES, Process
from moldau.raft.control_records import read_voters
from moldau.raft.snapshots import check_snapshot
from moldau.settings import from_properties, load
from moldau.wire.batch import split_batches
from moldau.wire.records import ControlType, control_type, decode_records

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=3\nlog.dirs={tmp_path}/a\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    return file


@pytest.fixture(autouse=True)
def clear_kafka_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KAFKA_") or name in ("CLUSTER_ID", "LOG_DIR")]:
        monkeypatch.delenv(name)


# --- kafka-storage ----------------------------------------------------------------------------------------------


def run_storage(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = storage.main(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_random_uuid_prints_an_id(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run_storage(capsys, "random-uuid")
    assert status == 0
    assert len(uuid_from_text(out.strip())) == 16


def test_a_random_uuid_never_begins_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([uuid.UUID(bytes=b"\xf8" + bytes(15)), uuid.UUID(bytes=bytes(16))])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(drawn))
    assert storage.random_uuid() == bytes(16)


def test_format_then_info(capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path) -> None:
    command = ("info", "-c", str(config))
    assert run_storage(capsys, *command) == (1, f"Found problem:\n  {tmp_path}/a does not exist\n\n", "")
    format = ("format", "-t", CLUSTER, "-c", str(config), "--standalone")
    assert run_storage(capsys, *format) == (
        0,
        f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.3-IV0.\n",
        "",
    )
    status, out, _ = run_storage(capsys, *command)
    assert status == 0
    shown = rf"Found metadata: \{{cluster.id={CLUSTER}, directory.id=[\w-]{{22}}, node.id=3, version=1\}}"
    assert re.fullmatch(rf"Found log directory:\n  {tmp_path}/a\n\n{shown}\n\n", out)
    assert run_storage(capsys, *format) == (
        1,
        "",
        f"Log directory {tmp_path}/a is already formatted. "
        "Use --ignore-formatted to ignore this directory and format the others.\n",
    )
    assert run_storage(capsys, *format, "--ignore-formatted") == (
        0,
        "All of the log directories are already formatted.\n",
        "",
    )


def test_an_added_log_directory_is_formatted(capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path) -> None:
    format = ("format", "-t", CLUSTER, "-c", str(config), "--ignore-formatted")
    run_storage(capsys, *format)
    config.write_text(f"node.id=3\nlog.dirs={tmp_path}/a,{tmp_path}/b,{tmp_path}/c\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "c").touch()
    status, out, _ = run_storage(capsys, "info", "-c", str(config))
    assert status == 1
    assert f"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n\n" in out
    assert f"Found problems:\n  {tmp_path}/b is not formatted.\n  {tmp_path}/c is not a directory\n\n" in out
    (tmp_path / "c").unlink()
    assert run_storage(capsys, *format)[:2] == (
        0,
        f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0.\n"
        f"Formatting data directory {tmp_path}/c with metadata.version 4.3-IV0.\n",
    )


def test_the_directory_of_another_cluster_is_refused(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path
) -> None:
    run_storage(capsys, "format", "-t", CLUSTER, "-c", str(config))
    assert run_storage(capsys, "format", "-t", "other", "-c", str(config), "-g") == (
        1,
        "",
        f"Invalid cluster.id in: {tmp_path}/a/meta.properties. Expected other, but read {CLUSTER}\n",
    )


def test_initial_controllers_sets_the_directory_id(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path
) -> None:
    directory = "JEXY6aqzQY-32P5TStzaFg"
    format = ("format", "-t", CLUSTER, "-c", str(config), "--initial-controllers")
    assert run_storage(capsys, *format, f"3@localhost:9093:{directory}")[0] == 0
    assert f"directory.id={directory}" in (tmp_path / "a" / "meta.properties").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-t", " x"], "--cluster-id x: expected an id such as"),
        (["-t", ""], "--cluster-id : expected an id such as"),
        (["-t", CLUSTER, "--add-scram", "SCRAM-SHA-1=[name=a,password=b]"], "The add-scram mechanism SCRAM-SHA-1 is"),
        (["-t", CLUSTER, "-I", "nonsense"], "No @ found in dynamic voter string."),
        (["-t", CLUSTER, "-r", "9.9"], "Unknown metadata.version '9.9'. Supported metadata.version are: 4.3-IV0"),
        (["-t", CLUSTER, "-r", "4.3", "-f", "metadata.version=30"], "Use --release-version instead of --feature"),
        (["-t", CLUSTER, "-f", "x=1"], "Unsupported feature: x. Supported features are: eligible.leader.replicas"),
        (["-t", CLUSTER, "-f", "x"], "Can't parse feature=level string x: equals sign not found."),
        (["-t", CLUSTER, "-f", "group.version=0"], "a new cluster begins with group.version=1"),
    ],
)
def test_wrong_format_arguments_are_reported_in_one_line(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    status, out, err = run_storage(capsys, "format", "-c", str(config), *words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert message in err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("cluster_id", ["MkU3OEVBNTcwNTJENDM2+/==", "my cluster: ü"])
def test_any_text_is_a_cluster_id(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path, cluster_id: str
) -> None:
    assert run_storage(capsys, "format", "-t", cluster_id, "-c", str(config))[0] == 0
    assert f"cluster.id={cluster_id}, " in run_storage(capsys, "info", "-c", str(config))[1]
    assert from_properties({}, cluster_id).cluster_id == cluster_id


def test_format_and_info_need_no_passwords_and_no_certificates(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path
) -> None:
    config.write_text(
        f"node.id=3\nlog.dirs={tmp_path}/a\nlisteners=SASL_SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\nlistener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:SSL\n"
        "inter.broker.listener.name=SASL_SSL\nsasl.enabled.mechanisms=PLAIN,GSSAPI\n"
        f"ssl.keystore.location={tmp_path}/no.p12\nauthorizer.class.name=a.b.C\nsuper.users=nobody\n"
    )
    assert run_storage(capsys, "format", "-t", CLUSTER, "-c", str(config), "--standalone")[0] == 0
    assert run_storage(capsys, "info", "-c", str(config))[0] == 0
    with pytest.raises(SettingsError):
        load(str(config))


CONTROLLER = "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
FIRST = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
"""The directories of two controllers."""


@pytest.mark.parametrize(
    ("node_id", "words", "kind", "voters"),
    [
        (3, ["--standalone"], "dynamic metadata voter directory", {3}),
        (3, ["-I", f"3@127.0.0.1:9093:{FIRST[0]}"], "dynamic metadata voter directory", {3}),
        (3, ["-I", f"4@b:1:{FIRST[1]},3@a:1:{FIRST[0]}"], "dynamic metadata voter directory", {3, 4}),
        (7, ["-I", f"4@b:1:{FIRST[1]},3@a:1:{FIRST[0]}"], "dynamic metadata directory", {3, 4}),
        (3, ["--no-initial-controllers"], "metadata directory", None),
    ],
)
def test_format_writes_the_first_voters(
    capsys: pytest.CaptureFixture[str],
    config: Path,
    tmp_path: Path,
    node_id: int,
    words: list[str],
    kind: str,
    voters: set[int] | None,
) -> None:
    config.write_text(
        f"node.id={node_id}\nlog.dirs={tmp_path}/a\n{CONTROLLER}controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
    )
    format = ("format", "-t", CLUSTER, "-c", str(config))
    expected_error = (
        "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
    )
    assert run_storage(capsys, *format)[2].startswith(expected_error)
    status, out, _ = run_storage(capsys, *format, *words)
    assert (status, out) == (0, f"Formatting {kind} {tmp_path}/a with metadata.version 4.3-IV0.\n")
    file = tmp_path / "a" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    assert file.exists() == (voters is not None)
    if voters is None:
        return
    directories = voters_of(file)
    assert directories.keys() == voters
    directory_id = meta_properties.parse((tmp_path / "a" / "meta.properties").read_text()).directory_id
    assert directory_id == directories[node_id] if node_id in voters else directory_id not in directories.values()
    assert "-I" not in words or directories[3] == uuid_from_text(FIRST[0])


def voters_of(snapshot: Path) -> dict[int, bytes]:
    """Return the voters and their directory ids, from the snapshot's VotersRecord."""
    check_snapshot(split_batches(memoryview(snapshot.read_bytes())))
    records = [
        record
        for header, batch in split_batches(memoryview(snapshot.read_bytes()))
        for record in decode_records(batch, header)
    ]
    (voters_record,) = (record for record in records if control_type(record) == ControlType.KRAFT_VOTERS)
    return {voter.key.id: voter.key.directory_id for voter in read_voters(voters_record)}


def test_a_node_without_a_controller_listener_needs_no_voters(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path
) -> None:
    assert run_storage(capsys, "format", "-t", CLUSTER, "-c", str(config), "--standalone")[0] == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["meta.properties"]


def test_standalone_is_refused_for_a_broker_only_node(
    capsys: pytest.CaptureFixture[str], config: Path, tmp_path: Path
) -> None:
    config.write_text(
        f"node.id=3\nlog.dirs={tmp_path}/a\nprocess.roles=broker\nlisteners=PLAINTEXT://127.0.0.1:0\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
    )
    format = ("format", "-t", CLUSTER, "-c", str(config))
    assert run_storage(capsys, *format, "--standalone")[2] == "You can only use --standalone on a controller.\n"
    assert run_storage(capsys, *format)[0] == 0


def test_static_voters_and_standalone_exclude_each_other(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    config.write_text(config.read_text() + "controller.quorum.voters=3@localhost:9093\n")
    status, _, err = run_storage(capsys, "format", "-t", CLUSTER, "-c", str(config), "--standalone")
    assert (status, "You cannot specify controller.quorum.voters" in err) == (1, True)


@pytest.mark.parametrize("words", [[], ["bogus"], ["format"], ["info"], ["feature-dependencies"]])
def test_a_wrong_command_line_prints_usage_with_status_1(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        storage.main(words)
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("usage: kafka-storage")
    assert "kafka-storage: error: " in err


def test_a_missing_config_file_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run_storage(capsys, "info", "-c", "/no/such.properties")
    assert (status, err) == (1, "/no/such.properties: cannot be read: No such file or directory\n")


def test_version_mapping_and_feature_dependencies(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run_storage(capsys, "version-mapping", "--release-version", "4.3")
    assert status == 0
    assert out.startswith("metadata.version=30 (4.3)\nkraft.version=1\ntransaction.version=2\n")
    assert run_storage(capsys, "feature-dependencies", "-f", "group.version=1")[:2] == (
        0,
        "group.version=1 has no dependencies.\n",
    )
    for words, expected_error in (
        ("x=2", "Unknown feature: x"),
        ("group.version=9", "Feature level 9 is not supported for feature group.version"),
        ("group.version=x", "Invalid version format: x for feature group.version"),
        ("group.version", "Invalid feature format: group.version. Expected format: 'feature=version' (e.g."),
    ):
        status, _, err = run_storage(capsys, "feature-dependencies", "-f", words)
        assert (status, err.startswith(expected_error)) == (1, True)


# --- command line, and how servers are found ---------------------------------------------------------------------


def test_server_start_parses_its_command_line() -> None:
    line = server_start.parse_line(["-daemon", "x.properties", "--override", "a=b", "--override=c=d=e"])
    assert line == server_start.StartLine("x.properties", (("a", "b"), ("c", "d=e")), daemon=True)
    assert server_start.parse_line([]) is None


@pytest.mark.parametrize("words", [["x", "--override"], ["x", "--override", "a"], ["x", "y"], ["x", "--bogus"]])
def test_server_start_rejects_wrong_arguments(words: list[str]) -> None:
    with pytest.raises(SettingsError):
        server_start.parse_line(words)


def test_server_start_without_a_file_prints_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert server_start.main([]) == 1
    assert capsys.readouterr().out.startswith("USAGE: kafka-server-start.sh [-daemon] server.properties")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (
            ["/usr/bin/python3", "-m", "moldau.cli.kafka.server_start", "x", "--override", "a=b"],
            ["x", "--override", "a=b"],
        ),
        (["python", "-X", "dev", "-m", "moldau.cli.kafka.server_start", "x"], ["x"]),
        (["python", "-u", "-m", "moldau.cli.kafka.server_start", "x"], ["x"]),
        (["/venv/bin/python", "/venv/bin/kafka-server-start.sh", "x"], ["x"]),
        (["/venv/bin/python3.12", "/venv/bin/kafka-server-start", "x"], ["x"]),
        (["python", "/venv/bin/moldau", "start", "-c", "x"], ["-c", "x"]),
        (["python", "/venv/bin/moldau", "--debug", "start"], []),
        (["python", "-m", "moldau", "start"], []),
        (["python", "/venv/bin/moldau", "topic", "create", "start"], None),
        (["python", "/venv/bin/kafka-server-stop.sh"], None),
        (["bash", "bin/kafka-server-start.sh", "x"], None),
        (["bash", "-c", "kafka-server-start.sh x"], None),
        (["vim", "kafka-server-start.sh"], None),
        (["java", "kafka.Kafka", "server.properties"], None),
        (["python", "-c", "print('moldau start')"], None),
        (["python"], None),
        ([], None),
    ],
)
def test_server_processes_are_recognised(argv: list[str], words: list[str] | None) -> None:
    server = as_server(Process(1, tuple(argv)))
    assert (list(server.words) if server else None) == words


def test_the_settings_of_a_running_server_are_found(config: Path) -> None:
    def node_id(*argv: str, environ: dict[str, str] | None = None) -> int:
        server = as_server(Process(1, ("python", *argv), str(config.parent), environ or {}))
        assert server is not None
        return server.settings().node_id

    assert node_id("-m", "moldau.cli.kafka.server_start", config.name) == 3
    assert node_id("-m", "moldau.cli.kafka.server_start", config.name, environ={"KAFKA_NODE_ID": "4"}) == 4
    assert node_id("-m", "moldau.cli.kafka.server_start", config.name, "--override", "node.id=5") == 5
    assert node_id("-m", "moldau", "start", "--listen", ":1", "--config", config.name) == 3
    assert node_id("-m", "moldau", "start", f"--config={config.name}", "-o", "node.id=6", "-d", "/x") == 6
    assert node_id("-m", "moldau", "start") == 1


# --- running servers ---------------------------------------------------------------------------------------------


@pytest.fixture
def unique_node_id() -> int:
    """Return a node id that no other server on this machine has: server_stop must find only this server."""
    return uuid.uuid4().int % 1_000_000_000 + 1_000_000_000


class ServerProcess:
    def __init__(self, words: list[str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> tuple[int, str]:
        """Return the exit status and the stderr output."""
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    running: list[ServerProcess] = []
    yield running
    for each in running:
        each.kill()


def test_moldau_start_announces_readiness_and_server_stop_stops_it(
    started: list[ServerProcess], tmp_path: Path, unique_node_id: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["moldau", "start", "--listen", "127.0.0.1:0", "-d", "data", "-o", f"node.id={unique_node_id}"]
    words += ["-o", "num.partition=3"]
    started.append(server := ServerProcess(words, tmp_path))
    ready = (
        rf"Moldau {re.escape(__version__)} is ready: 127\.0\.0\.1:(\d+) \(node {unique_node_id}, data in data\)\. .*\n"
    )
    found = re.fullmatch(ready, server.first_line())
    assert found is not None
    with socket.create_connection(("127.0.0.1", int(found[1])), timeout=PATIENCE_S):
        pass
    assert f"node.id={unique_node_id}" in (tmp_path / "data" / "meta.properties").read_text()
    assert server_stop.main([f"--node-id={unique_node_id}"]) == 0
    status, err = server.end()
    assert (status, "Traceback" in err) == (0, False)
    warning = "Warning: --override: unknown setting num.partition is ignored; did you mean num.partitions?\n"
    assert err.count(warning) == 1
    assert server_stop.main([f"--node-id={unique_node_id}"]) == 1
    assert capsys.readouterr().out == "No kafka server to stop\n"


def test_a_daemon_writes_its_output_to_a_file(tmp_path: Path, unique_node_id: int, config: Path) -> None:
    words = ["-daemon", str(config), "--override", f"node.id={unique_node_id}"]
    start = [sys.executable, "-m", "moldau.cli.kafka.server_start", *words]
    assert subprocess.run(start, cwd=tmp_path, timeout=PATIENCE_S, check=True, capture_output=True).stdout == b""
    running = filter(None, map(as_server, PROCESSES.all()))
    (server,) = [each for each in running if f"node.id={unique_node_id}" in each.words]
    pid = server.process.pid
    start_time = PROCESSES.start_time(pid)
    try:
        follow = ["tail", "-n", "+1", "-F", tmp_path / "logs" / "kafkaServer.out"]
        with subprocess.Popen(follow, stdout=subprocess.PIPE) as tail:
            assert tail.stdout is not None
            assert any(b"is ready" in line for line in tail.stdout)
            tail.kill()
    finally:
        assert server_stop.main(["--node-id", str(unique_node_id)]) == 0
    wait_until(lambda: PROCESSES.start_time(pid) != start_time, "the daemon has ended")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "num.partitions=none",
            "--override: Invalid value none for configuration num.partitions: Not a number of type INT",
        ),
        ("process.roles=broker", "a broker-only node needs controller.quorum.bootstrap.servers"),
        ("log.dirs=/proc/no", "/proc/no"),
    ],
)
def test_a_failed_start_prints_one_line(
    started: list[ServerProcess], tmp_path: Path, config: Path, override: str, expected: str
) -> None:
    for words in (
        ["moldau.cli.kafka.server_start", str(config), "--override", override],
        ["moldau", "start", "-c", str(config), "-o", override],
    ):
        started.append(server := ServerProcess(words, tmp_path))
        status, err = server.end()
        assert (status, err.count("\n")) == (1, 1)
        assert expected in err


def test_an_address_in_use_is_reported_with_its_process(started: list[ServerProcess], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        started.append(server := ServerProcess(["moldau", "start", "--listen", address], tmp_path))
        status, err = server.end()
        assert status == 1
        holder = rf"by process {os.getpid()} \(.+\)" if Path("/proc/net/tcp").exists() else ""
        assert re.fullmatch(
            rf"moldau: cannot listen on {address}: Address already in use {holder}; stop what listens there, or choose"
            r" another address \(the setting listeners, or `moldau start --listen HOST:PORT`\)\n",
            err,
        )


def test_a_daemon_with_a_wrong_setting_fails_before_it_detaches(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert server_start.main(["-daemon", str(config), "--override", "node.id=x"]) == 1
    assert "Invalid value x for configuration node.id" in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()


def test_the_example_config_loads_without_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    from moldau.settings import load

    settings = load(str(REPOSITORY / "config" / "server.properties"))
    assert settings.warnings == ()
    assert [str(each) for each in settings.listeners] == ["PLAINTEXT://localhost:9092"]
