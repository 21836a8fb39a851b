"""`moldau generate prometheus`: the addresses of a cluster's nodes, and arguments that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from moldau.cli.cluster.directory import DEFAULT_DIRECTORY, ClusterDirectory, Description
from moldau.cli.main import main


def generate(*words: str) -> Result:
    return CliRunner().invoke(main, ["generate", "prometheus", *words])


def targets(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return [str(each) for each in yaml.safe_load(result.stdout)["scrape_configs"][0]["static_configs"][0]["targets"]]


def laid_out(path: Path, overrides: dict[str, str] | None = None) -> ClusterDirectory:
    directory = ClusterDirectory(path)
    directory.lay_out(directory.plan(3, 23_092, overrides or {}, bytes(16)))
    return directory


def set_metrics_listener(directory: ClusterDirectory, node_id: int, line: str) -> None:
    path = directory.properties_path(node_id)
    lines = [each for each in path.read_text().splitlines() if not each.startswith("metrics.listener")]
    path.write_text("\n".join([*lines, line, ""]))


def test_the_directory_in_the_examples_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    laid_out(Path(DEFAULT_DIRECTORY))
    for words in (["generate"], ["generate", "prometheus"]):
        shown = CliRunner().invoke(main, [*words, "--help"]).stdout
        example = next(line for line in shown.splitlines() if "--cluster ./" in line)
        assert len(targets(generate("--cluster", example.split()[4]))) == 3


def test_the_addresses_are_those_in_the_settings_of_the_nodes(tmp_path: Path) -> None:
    directory = laid_out(tmp_path / "cluster")
    set_metrics_listener(directory, 1, "metrics.listener=localhost:9404")
    set_metrics_listener(directory, 2, "metrics.listener = :9405")
    set_metrics_listener(directory, 3, "")
    result = generate("--cluster", str(directory.path))
    assert targets(result) == ["localhost:9404", "127.0.0.1:9405"]
    left_out = "moldau: left out, without a fixed port in metrics.listener: node 3\n"
    assert result.stderr == left_out


def test_nodes_without_metrics_are_refused_with_the_file_to_edit(tmp_path: Path) -> None:
    directory = laid_out(tmp_path / "cluster", {"metrics.listener": "localhost:0"})
    result = generate("--cluster", str(directory.path))
    assert (result.exit_code, result.stderr) == (
        1,
        f"moldau: the nodes in {directory.path} serve no metrics at a fixed port: set metrics.listener in"
        f" {directory.properties_path(1)} and in those of the other nodes\n",
    )


def test_nodes_of_cores_cannot_be_scraped_at_a_fixed_port(tmp_path: Path) -> None:
    directory = laid_out(tmp_path / "cluster", {"metrics.listener": "localhost:0"})
    described = directory.description()
    directory.save(Description(described.cluster_id, described.nodes, described.overrides, shared_port=23_091))
    result = generate("--cluster", str(directory.path))
    assert "nodes of `moldau start --cores 3`" in result.stderr
    assert "server.properties" not in result.stderr


def test_wrong_settings_of_a_node_are_reported(tmp_path: Path) -> None:
    directory = laid_out(tmp_path / "cluster")
    set_metrics_listener(directory, 2, "metrics.listener=nowhere")
    assert "expected HOST:PORT, such as localhost:9404" in generate("--cluster", str(directory.path)).stderr


@pytest.mark.parametrize("interval", ["15s", "1h30m", "1m500ms", "1h2m3s4ms"])
def test_intervals_of_prometheus(interval: str) -> None:
    assert targets(generate("localhost:9404", "--interval", interval)) == ["localhost:9404"]


@pytest.mark.parametrize("interval", ["1s1m", "1m1m", "500ms1s", "", "15", "9999999h", "0s", "0h00m0s0ms"])
def test_other_intervals_are_refused(interval: str) -> None:
    assert "is not a time above 0" in generate("localhost:9404", "--interval", interval).stderr


@pytest.mark.parametrize("address", ["localhost:99999", "localhost:65536", "localhost:0", "localhost"])
def test_an_address_without_a_possible_port_is_refused(address: str) -> None:
    assert generate(address).stderr == f"moldau: '{address}' is not HOST:PORT, such as localhost:9404\n"
    assert generate("localhost:9404", "--pipeline", address).exit_code == 1
