"""`moldau pipeline` as far as it goes without Spark and without a broker: init, validate, graph, list, status, stop."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from harness.patience import PATIENCE_S

from moldau.cli.main import main
from moldau.cli.pipeline import commands
from moldau.cli.pipeline.files import complete_files, complete_sinks
from moldau.pipelines.problems import Problem
from moldau.pipelines.running import launching
from moldau.pipelines.running.ends import SinkStatus, SourceStatus
from moldau.pipelines.running.launching import batch_directory
from moldau.pipelines.running.progress import QueryStatus, RunStatus
from moldau.pipelines.running.state_directory import Holder, StateDirectory, default_directory
from moldau.pipelines.spec import Place
from moldau.pipelines.workbench import questions

Run = Callable[..., Result]

SHOP = """\
name: shop
sources:
  events:
    topic: shop.events
    schema: user string not null, amount int
steps:
  - name: big
    sql: select * from events where amount > 10
sinks:
  - name: big-ones
    from: big
    topic: shop.big
"""
STATUS = RunStatus(
    pipeline="shop", mode="continuous", state="running", pid=os.getpid(), host="here", started="2026-11-15T11:00:00Z",
    updated="2026-11-15T11:00:05Z",
    queries=(QueryStatus(name="big-ones", state="running", rows_in_per_second=1234.0, lag_records=7, lag_seconds=0.5),),
)  # fmt: skip
THIS_PROCESS = Holder(os.getpid(), "here", "2026-11-15T11:00:00Z")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str, status: int = 0) -> Result:
        result = CliRunner().invoke(main, ["pipeline", *words])
        assert result.exit_code == status, result.output
        return result

    return invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(SHOP)
    return path


@pytest.fixture
def directory(file: Path) -> StateDirectory:
    return default_directory(file, "shop")


def test_init_writes_a_valid_pipeline(run: Run, tmp_path: Path) -> None:
    output = run("init", "My Shop").stdout
    assert "wrote My Shop/pipeline.yaml" in output
    assert output.endswith("next: moldau pipeline test 'My Shop/pipeline.yaml'\n")
    assert run("validate", "--yaml-only", "My Shop").stdout.endswith("my-shop is fine as far as YAML goes\n")
    again = run("init", "My Shop", status=1)
    assert "is there already" in again.stderr


def test_init_writes_a_pipeline_between_two_ends(run: Run, tmp_path: Path) -> None:
    assert "wrote shop/data/orders.csv" in run("init", "shop", "--from", "csv", "--to", "sqlite").stdout
    assert run("validate", "--yaml-only", "shop").stdout.endswith("shop is fine as far as YAML goes\n")
    assert "Invalid value for '--to': 'oracle' is not one of " in run("init", "--to", "oracle", status=1).stderr


def test_init_completes_its_ends() -> None:
    by_option = {parameter.opts[0]: parameter for parameter in commands.init.params}
    context = click.Context(commands.init)

    def completed(option: str, incomplete: str) -> list[str]:
        return [item.value for item in by_option[option].shell_complete(context, incomplete)]

    assert completed("--from", "") == ["topic", "csv", "postgres"]
    assert completed("--to", "") == ["topic", "postgres", "sqlite", "delta", "http", "mail"]
    assert completed("--to", "m") == ["mail"]


def test_validate_shows_warnings_and_hints_and_fails_for_warnings_if_strict(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = Problem("step a: wide", Place(file=str(file), line=1, column=1), "narrow it", "warning")
    hint = Problem("sink b: alone", None, "join it", "hint")
    monkeypatch.setattr(commands, "_check_with_spark", lambda chosen: [hint, warning])
    monkeypatch.setattr("moldau.pipelines.running.topics.missing_topics", lambda pipeline: [])
    shown = run("validate", str(file))
    assert shown.stderr.startswith(f"{file}:1:1: warning: step a: wide\n")
    assert shown.stderr.endswith("hint: sink b: alone\n      = join it\n")
    assert shown.stdout.endswith(" would start, with 1 warning\n")
    refused = run("validate", "--strict", str(file), status=1).stderr
    assert "warning: step a: wide" in refused
    assert "1 problem found" in refused
    monkeypatch.setattr(commands, "_check_with_spark", lambda chosen: [hint])
    assert run("validate", "--strict", str(file)).stdout.endswith(" is fine\n")


def test_validate_without_a_broker_says_that_topics_are_not_checked(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_check_with_spark", lambda chosen: [])
    checked = run("validate", str(file), "-b", "127.0.0.1:1")
    assert checked.stdout.endswith(" is fine\n")
    assert "it was not checked whether the topics exist: " in checked.stderr


def test_validate_reports_the_position_of_every_mistake(run: Run, file: Path) -> None:
    file.write_text(SHOP.replace("topic: shop.big", "topik: shop.big").replace("from: big", "from: bug"))
    refused = run("validate", "--yaml-only", status=1).stderr
    assert "pipeline.yaml:11:11: sink 'big-ones': unknown view 'bug', did you mean 'big'?" in refused
    assert "'topik'" in refused
    assert "      |           ^^^" in refused
    assert refused.splitlines()[-1].startswith("moldau: ")


def test_a_missing_file_is_reported(run: Run) -> None:
    refused = run("validate", "nothing.yaml", status=1).stderr
    assert refused == (
        "moldau: nothing.yaml does not exist; give a pipeline's file, or write one with `moldau pipeline init`\n"
    )


def test_graph_in_three_forms(run: Run, file: Path) -> None:
    assert "shop.events" in run("graph").stdout
    assert run("graph", "--format", "mermaid").stdout.startswith("flowchart")
    assert run("graph", "-o", "flow.svg").stdout == "wrote flow.svg\n"
    assert "flow.png: a graph is written as .svg, " in run("graph", "-o", "flow.png", status=1).stderr
    assert not Path("flow.png").exists()
    assert "<svg" in (file.parent / "flow.svg").read_text()


def test_list_distinguishes_pipelines_from_other_yaml(run: Run, file: Path, directory: StateDirectory) -> None:
    (file.parent / "compose.yaml").write_text("services: {}\n")
    inner = file.parent / "inner"
    inner.mkdir()
    (inner / "broken.yml").write_text("name: broken\nsources:\nsinks:\n")
    found = {row["file"]: row for row in json.loads(run("list", "--format", "json").stdout)}
    assert set(found) == {"pipeline.yaml", "inner/broken.yml"}
    assert found["pipeline.yaml"] | {"since": None} == {
        "name": "shop", "file": "pipeline.yaml", "sources": 1, "steps": 1, "sinks": 1, "state": "never ran",
        "since": None, "lag": None,
    }  # fmt: skip
    assert "problem" in found["inner/broken.yml"]["state"]
    directory.write_status(replace(STATUS, state="running").to_json())
    with directory.locked(THIS_PROCESS):
        (row, *_) = [row for row in json.loads(run("list", "--format", "json").stdout) if row["name"] == "shop"]
    assert (row["state"], row["lag"]) == ("running", 7)


def test_list_does_not_show_the_run_of_one_file_for_another(run: Run, file: Path, directory: StateDirectory) -> None:
    """Files of one name in one folder have one state directory, and it does not say which of them was run."""
    directory.write_status(replace(STATUS, state="stopped").to_json())
    (file.parent / "copy.yaml").write_text(SHOP)
    (file.parent / "link.yaml").symlink_to("copy.yaml")
    (file.parent / "inner").mkdir()
    (file.parent / "inner" / "pipeline.yaml").write_text(SHOP)
    rows = {row["file"]: row for row in json.loads(run("list", "--format", "json").stdout)}
    for name in ("pipeline.yaml", "copy.yaml", "link.yaml"):
        assert (rows[name]["name"], rows[name]["state"], rows[name]["lag"]) == ("shop", "shared name", None)
    assert rows["inner/pipeline.yaml"]["state"] == "never ran"
    (file.parent / "link.yaml").unlink()
    assert run("list").stdout.splitlines()[-1] == (
        "copy.yaml and pipeline.yaml are both called shop: they share checkpoints in .moldau/pipelines/shop;"
        " give one another name"
    )
    (file.parent / "inner" / "more.yml").write_text(SHOP)
    (file.parent / "inner" / "most.yml").write_text(SHOP)
    assert run("list").stdout.splitlines()[-1] == (
        "inner/more.yml, inner/most.yml and inner/pipeline.yaml are all called shop: they share checkpoints in"
        " inner/.moldau/pipelines/shop; give all but one another name"
    )


def test_a_link_to_a_pipeline_is_the_same_pipeline(run: Run, file: Path, directory: StateDirectory) -> None:
    directory.write_status(replace(STATUS, state="stopped").to_json())
    (file.parent / "link.yaml").symlink_to(file)
    assert [row["state"] for row in json.loads(run("list", "--format", "json").stdout)] == ["stopped", "stopped"]


def test_list_mentions_checkpoints_of_a_former_name(run: Run, file: Path, directory: StateDirectory) -> None:
    directory.write_status(replace(STATUS, state="stopped", file=str(file)).to_json())
    assert len(run("list").stdout.splitlines()) == 2
    file.write_text(SHOP.replace("name: shop", "name: store"))
    assert len(run("list").stdout.splitlines()) == 2, "nothing is printed without checkpoints"
    directory.checkpoint("big-ones").mkdir(parents=True)
    assert run("list").stdout.splitlines()[2:] == [
        ".moldau/pipelines/shop has checkpoints of shop, and no file here has that name;"
        " they are of a run of pipeline.yaml"
    ]
    file.write_text(SHOP.replace("from: big", "from: bug"))
    assert len(run("list").stdout.splitlines()) == 2, "a file with mistakes still has its state"


def test_a_renamed_pipeline_is_refused_before_spark_is_started(run: Run, file: Path, directory: StateDirectory) -> None:
    pytest.importorskip("pyspark")
    from moldau.pipelines.reading.loading import load
    from moldau.pipelines.running import identity

    identity.record(directory, "shop", identity.of_pipeline(load(file)), lambda: "abc")
    (directory.checkpoint("big-ones") / "offsets").mkdir(parents=True)
    (directory.checkpoint("big-ones") / "offsets" / "0").touch()
    directory.write_status(replace(STATUS, state="stopped", file=str(file)).to_json())
    file.write_text(SHOP.replace("name: shop", "name: store"))
    refused = run("run", "-b", "127.0.0.1:1", "--until-caught-up", status=1).stderr
    assert "this pipeline was called shop when it ran before" in refused
    assert "`moldau pipeline run pipeline.yaml --fresh` to write everything once more" in refused
    assert "No broker answers: 127.0.0.1:1" in run("run", "-b", "127.0.0.1:1", "--fresh", status=1).stderr


def test_list_in_an_empty_folder(run: Run) -> None:
    assert run("list").stdout == "no pipelines here; `moldau pipeline init` writes one\n"


def test_status_of_a_run(run: Run, file: Path, directory: StateDirectory) -> None:
    assert "has never been run" in run("status", status=1).stderr
    directory.write_status(STATUS.to_json())
    with directory.locked(THIS_PROCESS):
        output = run("status").stdout.splitlines()
        assert output[0] == "shop: running"
        assert output[2].split() == ["big-ones", "running", "1.23k", "-", "7", "0.5", "-", "-", "-", "0"]
        (query,) = json.loads(run("status", "shop", "--format", "json").stdout)["queries"]
        assert (query["name"], query["lag_records"]) == ("big-ones", 7)
        assert "lag_records: 7" in run("status", "--format", "yaml").stdout


def test_status_shows_sources_and_sinks(run: Run, file: Path, directory: StateDirectory) -> None:
    (old,) = STATUS.queries
    sources = {"events": SourceStatus(rows=10, rows_per_second=2.0, lag_records=7, lag_seconds=0.5)}
    sinks = {"big-ones": SinkStatus(rows=9, rows_per_second=1.0, retries=4, dead_letters=2, last_error="503")}
    directory.write_status(replace(STATUS, queries=(replace(old, sources=sources, sinks=sinks),)).to_json())
    with directory.locked(THIS_PROCESS):
        assert [line.split() for line in run("status").stdout.splitlines()[3:]] == [
            [],
            ["SOURCE", "QUERY", "ROWS/S", "ROWS", "BAD", "LAG", "LAG", "S", "LAST", "CHANGE"],
            ["events", "big-ones", "2", "10", "-", "7", "0.5", "-"],
            [],
            ["SINK", "ROWS/S", "ROWS", "RETRIES", "DEAD", "LETTERS", "LAST", "ERROR"],
            ["big-ones", "1", "9", "4", "2", "503"],
        ]
    killed = run("status").stdout.splitlines()[-5:]
    assert killed[1].split() == ["events", "big-ones", "0", "10", "-", "-", "-", "-"], "no broker says the lag"
    assert killed[4].split() == ["big-ones", "-", "9", "4", "2", "503"]


def test_status_shows_what_a_run_waits_for(run: Run, file: Path, directory: StateDirectory) -> None:
    directory.write_status(replace(STATUS, queries=(QueryStatus(name="big-ones", state="running"),)).to_json())
    with directory.locked(THIS_PROCESS):
        assert run("status").stdout.splitlines()[0] == "shop: running, first micro-batch of big-ones"
        directory.write_status(replace(STATUS, state="starting", message="starting Java", queries=()).to_json())
        assert run("status").stdout == "shop: starting\nstarting Java\n"


def test_status_of_a_killed_run(run: Run, file: Path, directory: StateDirectory) -> None:
    directory.write_status(STATUS.to_json())
    output = run("status").stdout
    assert output.startswith(f"shop: failed\nprocess {os.getpid()} on here was killed or crashed;")
    assert "ROWS IN  ROWS OUT" in output, "a run that has ended shows its totals"


def test_the_position_of_a_killed_run_is_that_of_its_checkpoint(
    run: Run, file: Path, directory: StateDirectory
) -> None:
    """Batches are committed after the last status was written."""
    (old,) = STATUS.queries
    directory.write_status(replace(STATUS, queries=(replace(old, position={"shop.events": {"0": 5}}),)).to_json())
    checkpoint = directory.checkpoint("big-ones")
    for kind, last in ("offsets", '{"shop.events":{"0":9}}'), ("commits", ""):
        (checkpoint / kind).mkdir(parents=True)
        (checkpoint / kind / "3").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{last}')
    query = next(
        each for each in json.loads(run("status", "--format", "json").stdout)["queries"] if each["name"] == "big-ones"
    )
    assert query["position"] == {"shop.events": {"0": 9}}
    assert (query["state"], query["rows_in_per_second"], query["rows_out_per_second"]) == ("stopped", 0.0, None)


def test_the_listed_lag_is_unknown_while_that_of_a_query_is(run: Run, file: Path, directory: StateDirectory) -> None:
    """The query without a finished batch may be the one that is furthest behind."""
    (known,) = STATUS.queries
    known = replace(known, batch_id=3)
    with directory.locked(THIS_PROCESS):
        for queries, lag in ((known,), 7), ((known, QueryStatus(name="stuck")), None):
            directory.write_status(replace(STATUS, queries=queries).to_json())
            assert [row["lag"] for row in json.loads(run("list", "--format", "json").stdout)] == [lag]


def test_status_mentions_a_batch_that_ran_since(run: Run, file: Path, directory: StateDirectory) -> None:
    directory.write_status(replace(STATUS, state="stopped").to_json())
    batch = replace(STATUS, state="finished", mode="batch", updated="2026-11-15T11:30:00Z")
    batch_directory(directory).write_status(batch.to_json())
    assert "a --batch run since then: finished at 2026-11-15T11:30:00Z" in run("status").stdout
    directory.write_status(replace(STATUS, state="stopped", updated="2026-11-15T12:00:00Z").to_json())
    assert "--batch" not in run("status").stdout


def test_status_of_a_pipeline_that_never_ran_here(run: Run) -> None:
    assert "no pipeline books has been run from this folder" in run("status", "books", status=1).stderr


def test_a_status_written_by_another_version_is_refused(run: Run, file: Path, directory: StateDirectory) -> None:
    directory.write_status({"pipeline": "shop"})
    assert "not a status of this version" in run("status", status=1).stderr


@pytest.mark.parametrize("content", ["{broken", '{"pipeline": "shop"}'])
def test_list_shows_other_pipelines_beside_an_unreadable_status(
    run: Run, file: Path, directory: StateDirectory, content: str
) -> None:
    directory.write_status(STATUS.to_json())
    (directory.path / "status.json").write_text(content)
    (file.parent / "inner").mkdir()
    (file.parent / "inner" / "broken.yml").write_text("name: broken\nsources:\nsinks:\n")
    rows = {row["file"]: row["state"] for row in json.loads(run("list", "--format", "json").stdout)}
    assert rows["pipeline.yaml"] == "unknown"
    assert "problem" in rows["inner/broken.yml"]


def test_stop_waits_for_the_run_to_end(run: Run, file: Path, directory: StateDirectory) -> None:
    assert run("stop", status=1).stderr == "moldau: shop is not running\n"
    locked, pause = threading.Event(), threading.Event()

    def until_asked() -> None:
        with directory.locked(THIS_PROCESS):
            locked.set()
            while not directory.stop_requested():
                pause.wait(0.01)

    runner = threading.Thread(target=until_asked)
    runner.start()
    assert locked.wait(PATIENCE_S)
    assert run("stop").stdout == "shop stopped\n"
    runner.join()


def test_stop_reports_a_timeout(run: Run, file: Path, directory: StateDirectory) -> None:
    with directory.locked(THIS_PROCESS):
        refused = run("stop", "--timeout", "0.1", status=1).stderr
    assert f"still runs after 0 s (process {os.getpid()} on here)" in refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--until-caught-up", "--batch"], "two ways to run"),
        (["--batch", "--from", "latest"], "there is nothing to read from latest"),
        (["--batch", "--from", '{"order": {"0": 5}}'], "no source reads a topic order"),
        (["--batch", "--fresh", "--existing", "clear"], "a --batch has no checkpoints"),
        (["--from", "earliest"], "--from and --to say what a --batch reads"),
        (["--batch", "--from", "yesterday"], "'yesterday' is not a position"),
        (["--batch", "--from", "9999-12-31T23:59:59-01:00"], "'9999-12-31T23:59:59-01:00' is not a position"),
        (["--batch", "--to", '{"a": 1}'], "is not a position"),
        (["--batch", "--to", '{"orders": {"0": null}}'], "is not a position"),
        (["--batch", "--to", '{"orders": {"0": 1.5}}'], "is not a position"),
        (["--batch", "--to", '{"orders": {"0": true}}'], "is not a position"),
        (["--batch", "--to", '{"orders": ' + "[" * 100_000], "is not a position"),
        (["--deploy-mode", "cluster"], "needs --master"),
        (["--deploy-mode", "cluster", "--master", "yarn"], "needs --state"),
        (["--sink", "bigones"], "there is no sink bigones, did you mean 'big-ones'?"),
        (["--fresh", "counts"], "there is no sink counts"),
        (["--fresh", "pipeline.yaml"], "write the file in front of it"),
        (["-b", "127.0.0.1:1"], "No broker answers: 127.0.0.1:1"),
        (["-b", "broker"], "the bootstrap address 'broker' is not host:port\n"),
    ],
)
def test_runs_that_are_refused_before_spark_is_started(run: Run, file: Path, words: list[str], message: str) -> None:
    pytest.importorskip("pyspark")
    assert message in run("run", str(file), *words, status=1).stderr


def test_a_second_run_is_refused_before_spark_is_started(run: Run, file: Path, directory: StateDirectory) -> None:
    pytest.importorskip("pyspark")
    with directory.locked(THIS_PROCESS):
        refused = run("run", status=1).stderr
    assert f"shop is being run already by process {os.getpid()} on here since 2026-11-15T11:00:00Z" in refused


@pytest.mark.parametrize("words", [[], ["--batch"]])
def test_the_error_of_a_failed_run_has_the_file_of_its_failures(
    run: Run, file: Path, directory: StateDirectory, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    failures = (batch_directory(directory) if words else directory).failures

    def fail(*args: object) -> RunStatus:
        failures.parent.mkdir(parents=True)
        failures.write_text("a long story")
        return replace(STATUS, state="failed", message="it failed")

    monkeypatch.setattr(launching, "launch", fail)
    assert run("run", *words, status=1).stderr == f"moldau: it failed (all of it: {failures})\n"


def test_run_accepts_the_directory_of_a_pipeline(run: Run, file: Path, directory: StateDirectory) -> None:
    (file.parent / "shop").mkdir()
    file = file.rename(file.parent / "shop" / file.name)
    directory = default_directory(file, "shop")
    directory.write_status(replace(STATUS, file=str(file), state="stopped").to_json())
    with directory.locked(THIS_PROCESS):  # the first check after the one of the name
        assert "is being run already" in run("run", "shop", status=1).stderr


@pytest.mark.parametrize("command", ["validate", "preview"])
def test_a_running_dev_is_asked_about_the_file_in_a_directory(
    run: Run, file: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file.parent / "shop").mkdir()
    file = file.rename(file.parent / "shop" / file.name)
    asked: list[Path] = []

    def ask(file: Path, *args: object) -> dict[str, list[object]]:
        asked.append(file.absolute())
        return {"problems": [], "previews": []}

    monkeypatch.setattr(questions, "ask", ask)
    run(command, "shop")
    assert asked == [file]


def test_a_pipeline_without_test_cases_is_reported(run: Run, file: Path) -> None:
    pytest.importorskip("pyspark")
    assert "there are no test cases" in run("test", str(file), status=1).stderr


def test_completion_of_files_and_sinks(run: Run, file: Path) -> None:
    (file.parent / "inner").mkdir()
    (file.parent / "notes.txt").touch()
    from moldau.cli.pipeline.run import run as command

    context = command.make_context("run", [str(file)])
    names = [item.value for item in complete_files(context, command.params[0], "")]
    assert names == ["inner/", "pipeline.yaml"]
    assert [item.value for item in complete_sinks(context, command.params[0], "b")] == ["big-ones"]


def test_a_missing_library_is_reported_with_its_extra(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml")

    monkeypatch.setattr("moldau.pipelines.reading.loading.load", refuse)
    refused = run("validate", "--yaml-only", status=1).stderr
    assert refused == "moldau: pipelines need yaml: pip install 'moldau[spark]'\n"


def test_a_file_with_a_similar_name_is_suggested(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lifts.yaml").write_text("name: lifts\n")
    message = run("validate", str(tmp_path / "lifts.yml"), status=1).stderr
    assert "lifts.yml does not exist, did you mean 'lifts.yaml'; give a pipeline's file" in message


SECURED = SHOP + "kafka:\n  sasl.password: ${env:SHOP_PASSWORD}\n  security.protocol: SASL_PLAINTEXT\n"
PLANTED = "pl4nted"


def test_only_commands_that_connect_need_the_password(run: Run, file: Path, directory: StateDirectory) -> None:
    file.write_text(SECURED)
    missing = "pipeline.yaml:14:18: the environment has no variable 'SHOP_PASSWORD'"
    assert missing in run("validate", "--yaml-only", status=1).stderr
    assert missing in run("run", status=1).stderr
    assert "shop.events" in run("graph").stdout
    position = {"shop.events": {"0": 5}}
    query = replace(STATUS.queries[0], position=position)
    directory.path.mkdir(parents=True)
    directory.write_status(replace(STATUS, state="stopped", file=str(file), queries=(query,)).to_json())
    status = json.loads(run("status", "--format", "json").stdout)
    assert (status["queries"][0]["name"], status["queries"][0]["lag_records"]) == ("big-ones", None)
    (row,) = json.loads(run("list", "--format", "json").stdout)
    assert (row["name"], row["state"]) == ("shop", "stopped")
    assert "is not running" in run("stop", status=1).stderr


def test_no_command_shows_the_password(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PLANTED)
    file.write_text(SECURED)
    outputs = [run("validate", "--yaml-only").output, run("graph").output, run("list").output]
    file.write_text(
        SECURED + f"  ssl.key.password: {PLANTED}\n  bootstrap.servers: x\n  x: {{sasl.password: {PLANTED}}}\n"
    )
    outputs += [run("validate", "--yaml-only", status=1).output, run("run", status=1).output]
    # `run` connects before it starts Spark; here the connection is refused, and the mechanism is not set.
    file.write_text(SECURED)
    outputs.append(run("run", "-b", "127.0.0.1:1", status=1).output)
    assert "kafka: sasl.mechanism: expected one of" in outputs[-1]
    assert [output for output in outputs if PLANTED in output] == []
