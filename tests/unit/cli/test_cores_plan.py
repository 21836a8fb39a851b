"""`moldau start --cores`: ids, ports, racks and settings of its nodes, the directories it refuses, and restarts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.base.setting_sources import SettingsError, SettingText
from moldau.cli.cluster.directory import ClusterDirectory, Description
from moldau.cli.cluster.foreground import announcement
from moldau.cli.cluster.processes import node_environment
from moldau.cli.cluster.restarts import DELAY_S_MAX, STABLE_AFTER_S, Restarts
from moldau.cli.cluster.screen import JsonScreen
from moldau.cli.connect import CommandFailed
from moldau.cli.cores.plan import CoresPlan, Machine, node_settings, parse_machines, plan_nodes
from moldau.cli.cores.start import CoresStart
from moldau.cli.log.output import LogOutput
from moldau.cli.main import main
from moldau.settings import Settings, from_texts

MACHINES = parse_machines("one,two,three:9192,four")


def settings_of(plan: CoresPlan, controller_port: int = 10_092, **user: str) -> list[Settings]:
    """Return the settings of all nodes, as they read them."""
    internal = [0 if plan.machines else port + 2000 for port in plan.ports]
    nodes = plan_nodes(plan, controller_port, internal)
    texts = {key.replace("_", "."): SettingText(value, "file") for key, value in user.items()}
    stores = ("/keys.pem", "/trust.pem") if plan.is_secure else None
    written = [node_settings(plan, node, nodes, f"/data/node-{node.id}", texts, stores) for node in nodes]
    environ = {"MOLDAU_SHARED_LISTENER": "BOOTSTRAP"}
    return [from_texts({key: SettingText(text, "test") for key, text in each.items()}, environ) for each in written]


def test_each_node_has_a_port_a_folder_and_the_shared_port() -> None:
    nodes = settings_of(CoresPlan(3, "0.0.0.0", 9092, "kafka.example.com"))
    assert [each.node_id for each in nodes] == [1, 2, 3]
    assert [each.process_roles for each in nodes] == [("broker", "controller"), ("broker",), ("broker",)]
    assert [each.log_dirs for each in nodes] == [("/data/node-1",), ("/data/node-2",), ("/data/node-3",)]
    for number, each in enumerate(nodes, start=1):
        listeners = {listener.name: listener.address for listener in each.listeners}
        own = f"kafka.example.com:{9092 + number}"
        advertised = {listener.name: listener.address for listener in each.advertised_listeners}
        assert listeners["PLAINTEXT"] == f"0.0.0.0:{9092 + number}"
        assert listeners["BOOTSTRAP"] == "0.0.0.0:9092"
        assert advertised == {"PLAINTEXT": own, "BOOTSTRAP": own, "NODES": f"127.0.0.1:{11_092 + number}"}
        assert each.shared_listener == "BOOTSTRAP"
        assert each.inter_broker_listener_name == "NODES"
        assert not each.warnings
        assert not each.is_alone
        assert [voter.id for voter in each.quorum.voters] == [1]
    assert nodes[0].controller_listeners[0].address == "127.0.0.1:10092"


def test_one_machine_has_one_rack_and_one_replica_of_everything() -> None:
    nodes = settings_of(CoresPlan(2, "localhost", 9092, "localhost"))
    assert len({each.broker_rack for each in nodes}) == 1
    assert nodes[0].broker_rack
    for each in nodes:
        assert each.default_replication_factor == each.offsets_topic_replication_factor == each.min_insync_replicas == 1


def test_settings_of_the_user_win_over_defaults_but_not_over_the_plan() -> None:
    plan = CoresPlan(2, "localhost", 9092, "localhost")
    nodes = settings_of(plan, num_partitions="6", min_insync_replicas="2")
    assert [(each.num_partitions, each.min_insync_replicas) for each in nodes] == [(6, 2), (6, 2)]
    for key in ("node.id", "broker.id", "process.roles", "broker.rack", "controller.quorum.voters"):
        with pytest.raises(SettingsError, match=rf"^file: {key}: --cores sets this"):
            settings_of(plan, **{key: "2"})


def test_the_file_of_a_single_node_can_be_used_unchanged() -> None:
    plan = CoresPlan(2, "localhost", 9092, "localhost")
    assert [each.node_id for each in settings_of(plan, node_id="1", process_roles="broker,controller")] == [1, 2]


def test_joined_machines_have_racks_ids_and_a_quorum_of_three() -> None:
    plans = [CoresPlan(2, "0.0.0.0", each.port, each.host, machines=MACHINES) for each in MACHINES]
    nodes = [settings_of(plan, 10_092 if plan.node_ids[0] in plan.voters else 0) for plan in plans]
    assert [[each.node_id for each in machine] for machine in nodes] == [[1, 2], [101, 102], [201, 202], [301, 302]]
    assert [machine[0].broker_rack for machine in nodes] == ["one:9092", "two:9092", "three:9192", "four:9092"]
    assert all(machine[0].broker_rack == machine[1].broker_rack for machine in nodes)
    assert [machine[0].is_controller for machine in nodes] == [True, True, True, False]
    assert not any(machine[1].is_controller for machine in nodes)
    voters = {each.properties["controller.quorum.voters"] for machine in nodes for each in machine}
    assert voters == {"1@one:10092,101@two:10092,201@three:10192"}
    assert nodes[1][1].default_replication_factor == 3
    assert nodes[1][1].min_insync_replicas == 2
    assert nodes[2][1].advertised_listeners[0].address == "three:9194"
    assert nodes[2][1].inter_broker_listener_name == "PLAINTEXT"


def test_two_machines_have_one_controller() -> None:
    assert CoresPlan(1, "a", 9092, "a", machines=parse_machines("a,b")).voters == {1: Machine("a", 9092)}


def test_all_listeners_of_a_secured_machine_need_a_password_or_a_certificate() -> None:
    for each in settings_of(CoresPlan(2, "0.0.0.0", 9092, "kafka.example.com", is_secure=True)):
        protocols = {listener.name: listener.security_protocol for listener in each.listeners}
        assert protocols == {"SASL_SSL": "SASL_SSL", "BOOTSTRAP": "SASL_SSL", "NODES": "SSL"}
        internal = ["NODES", *(listener.name for listener in each.controller_listeners)]
        assert [each.tls[name].client_auth for name in internal] == ["required"] * len(internal)
        assert each.authorizer.is_enabled
    with pytest.raises(SettingsError, match=r"authorizer.class.name"):
        settings_of(CoresPlan(2, "0.0.0.0", 9092, "x", is_secure=True), authorizer_class_name="")


@pytest.mark.parametrize("text", ["a", "a,a", "a,b:c", "a,[b", "a,b:9092:1", ",", "a,a:9092"])
def test_wrong_lists_of_machines_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^--machines "):
        parse_machines(text)


def test_a_machine_that_is_not_in_the_list_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"this machine .*five:9092.* is not one of them"):
        settings_of(CoresPlan(2, "0.0.0.0", 9092, "five", machines=MACHINES))


@pytest.mark.parametrize("port", [0, 63_534, 65_535])
def test_ports_that_do_not_fit_are_refused(port: int) -> None:
    """The last port of the second node is 2,002 above."""
    with pytest.raises(SettingsError, match=r"--listen HOST:PORT"):
        _ = CoresPlan(2, "localhost", port, "localhost").ports
    assert CoresPlan(2, "localhost", 63_533, "localhost").ports[-1] == 63_535


# --- the directory ---------------------------------------------------------------------------------------------------


def described(path: Path, cores: int, **user: str) -> Description:
    texts = {"log.dirs": SettingText(str(path), "-d"), "listeners": SettingText("PLAINTEXT://localhost:15092", "-l")}
    texts |= {key.replace("_", "."): SettingText(value, "file") for key, value in user.items()}
    starting = CoresStart(texts, {}, cores, None, None)
    description = starting._describe(LogOutput())
    starting._lay_out(description)
    return description


def test_more_nodes_are_added_and_fewer_are_refused(tmp_path: Path) -> None:
    two, path = described(tmp_path / "d", 2), tmp_path / "d"
    three = described(path, 3)
    assert three.cluster_id == two.cluster_id
    assert [node.id for node in three.nodes] == [1, 2, 3]
    assert ClusterDirectory(path).description() == three
    with pytest.raises(CommandFailed, match=r"holds partitions of 3 nodes, .* start with --cores 3 or more"):
        described(path, 2)


def test_the_id_of_another_cluster_is_refused(tmp_path: Path) -> None:
    texts = {"log.dirs": SettingText(str(tmp_path / "d"), "-d")}
    described(tmp_path / "d", 2)
    with pytest.raises(CommandFailed, match=r"CLUSTER_ID differs"):
        CoresStart(texts, {"CLUSTER_ID": "other"}, 2, None, None)._describe(LogOutput())


def test_settings_are_written_at_each_start_for_their_owner_only(tmp_path: Path) -> None:
    described(tmp_path / "d", 2)
    described(tmp_path / "d", 2, num_partitions="7")
    file = ClusterDirectory(tmp_path / "d").properties_path(2)
    assert "num.partitions=7\n" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_data_of_a_single_node_is_refused_until_it_is_moved(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.mkdir()
    meta = "version=1\ncluster.id=theirs\nnode.id=1\ndirectory.id=lOLpbQhW6nUlMvV2WenSFw\n"
    (path / "meta.properties").write_text(meta)
    with pytest.raises(CommandFailed, match=r"is the data of a single node; .* `mv ") as refused:
        described(path, 2)
    assert f"mv {path}-1 {path}/node-1/data" in str(refused.value)
    path.rename(tmp_path / "d-1")
    (path / "node-1").mkdir(parents=True)
    (tmp_path / "d-1").rename(path / "node-1" / "data")
    assert described(path, 2).cluster_id == "theirs"


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("")
    with pytest.raises(CommandFailed, match=r"not empty"):
        described(tmp_path, 2)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.doc"]


def test_the_error_of_a_wrong_start_command_has_the_right_one(tmp_path: Path) -> None:
    path = tmp_path / "d"
    described(path, 2)
    for words in (["start", "-d", str(path)], ["start", "--cores", "1", "-d", str(path)]):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 1
        assert f"`moldau start --cores 2 --data-dir {path}`" in result.stderr
    result = CliRunner().invoke(main, ["cluster", "start", "-d", str(path)])
    assert result.exit_code == 1
    assert "`moldau start --cores 2`" in result.stderr
    directory = ClusterDirectory(tmp_path / "c")
    directory.lay_out(directory.plan(3, 15_092, {}, bytes(16)))
    with pytest.raises(CommandFailed, match=r"`moldau cluster start`"):
        described(tmp_path / "c", 3)


def test_ports_are_printed_in_one_line(tmp_path: Path) -> None:
    description = described(tmp_path / "d", 2)
    (line,) = announcement(ClusterDirectory(tmp_path / "d"), description, 1.0)
    for words in ("localhost:15092 (", "nodes 1-2 on ports 15093-15094", "controller on port 16092", "17093, 17094"):
        assert words in line


def test_nodes_know_the_shared_listener_and_stop_with_their_parent(tmp_path: Path) -> None:
    description = described(tmp_path / "d", 2)
    environment = node_environment(description, stops_with_us=True)
    assert environment["MOLDAU_SHARED_LISTENER"] == "BOOTSTRAP"
    assert environment["MOLDAU_STOP_WITH_STDIN"]
    assert "MOLDAU_STOP_WITH_STDIN" not in node_environment(description)


@pytest.mark.parametrize("text", ["0", "100", "-1", "two", "²", ""])
def test_wrong_numbers_of_cores_are_refused(text: str) -> None:
    result = CliRunner().invoke(main, ["start", "--cores", text])
    assert result.exit_code == 1
    assert "is not a number from 1 to 99, nor 'all'" in result.stderr


# --- restarts and lines ----------------------------------------------------------------------------------------------


def test_a_node_that_keeps_dying_is_restarted_with_growing_delays() -> None:
    restarts, now, delays = Restarts(), 0.0, []
    for _ in range(2000):
        restarts.started(2, now)
        assert not restarts.is_due(2, now)
        delays.append(restarts.ended(2, now))
        assert restarts.is_due(2, now + delays[-1])
        assert not delays[-1] or not restarts.is_due(2, now)
        now += delays[-1]
    assert delays[:6] == [0, 1, 2, 4, 8, 16]
    assert set(delays[6:]) == {DELAY_S_MAX}
    restarts.started(2, now)
    assert restarts.ended(2, now + STABLE_AFTER_S) == 0
    assert not restarts.is_due(1, now)


def test_json_lines_of_nodes_are_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    screen = JsonScreen(lambda: datetime(2026, 1, 2, tzinfo=UTC))
    screen.node_line(2, '{"message": "theirs"}')
    screen.node_line(2, "Moldau is ready")
    screen.line("ours")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["message"] for line in lines] == ["theirs", "Moldau is ready", "ours"]
    assert lines[1]["node"] == 2
    assert lines[2]["time"] == "2026-01-02T00:00:00.000Z"
