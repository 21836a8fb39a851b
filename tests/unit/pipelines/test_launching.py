"""The start of a run, without Spark: a stop, an interruption or damaged state before the first query."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from marked_yaml import WHOLE_PIPELINE, load_text

import moldau.cli.pipeline.run as run_command
from moldau.cli.pipeline.files import Chosen
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.running import fresh_start, launching
from moldau.pipelines.running.display import PlainDisplay
from moldau.pipelines.running.fresh_start import FreshStart, Outputs
from moldau.pipelines.running.launching import RunOptions, launch
from moldau.pipelines.running.progress import QueryStatus, RunStatus
from moldau.pipelines.running.run import Job, NoBroker
from moldau.pipelines.running.state_directory import Holder, StateDirectory, StateRefused, write_json
from moldau.pipelines.running.stop_request import Stop
from moldau.pipelines.spec import Pipeline

SHARED = WHOLE_PIPELINE + "    name: a\n  - from: orders\n    topic: large\n    name: b\n    with: a\n"
LAST = RunStatus(
    pipeline="shop", mode="continuous", state="running", pid=1, host="h", started="a", updated="b",
    queries=(QueryStatus(name="counts", state="running", lag_records=7),),
)  # fmt: skip


class Start:
    """A start of the pipeline without Spark and without a broker, up to the first query."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = WHOLE_PIPELINE) -> None:
        self.directory, self.stop, self.out = StateDirectory(folder / "state"), Stop(), StringIO()
        self.pipeline = load_text(folder, text)
        self.chosen: list[str] = []
        self.during_compile: Callable[[], None] = lambda: self.stop.request("stopped by a test")
        self.during_spark_start: Callable[[], None] = lambda: None
        monkeypatch.setattr(launching, "_jobs", self._jobs)
        monkeypatch.setattr(launching, "_broker", lambda *args: nullcontext(NoBroker()))
        monkeypatch.setattr(launching, "_tasks_done", lambda spark: ())
        monkeypatch.setattr(launching, "existing_output_warnings", lambda *args: [])
        monkeypatch.setattr(launching.topics, "prepare", lambda *args: [])

    def _jobs(self, pipeline: Pipeline, spark: Any, directory: Any, options: Any, chosen: list[str]) -> list[Any]:
        self.during_compile()
        self.chosen = list(chosen)
        return [Job(name, start=lambda: pytest.fail("a query was started")) for name in chosen]

    def _session(self, on_phase: Any) -> Any:
        self.during_spark_start()
        return SimpleNamespace()

    def run(self, mode: str = "CONTINUOUS", **options: Any) -> RunStatus:
        chosen_mode: Any = SimpleNamespace(name=mode, value=mode.lower())
        display = PlainDisplay(self.out, self.out, lambda: "now")
        run_options = RunOptions(mode=chosen_mode, **options)
        return launch(self.pipeline, self.directory, run_options, self._session, display, self.stop)

    def last_status(self) -> RunStatus:
        return RunStatus.from_json(self.directory.read_status() or {})


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    return Start(tmp_path, monkeypatch)


@pytest.mark.parametrize("by_command", [False, True])
def test_a_stop_before_the_first_query_clears_nothing(
    start: Start, by_command: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who presses Ctrl-C while a `--fresh --existing clear` compiles wants to keep the existing outputs."""
    table = start.directory.path.parent / "table"
    table.mkdir()
    plan = FreshStart(None, tables=(str(table),))
    monkeypatch.setattr(launching, "plan_fresh_start", lambda *args: plan)
    monkeypatch.setattr(FreshStart, "perform", lambda *args: pytest.fail("a stopped run has cleared outputs"))
    checkpoint = start.directory.checkpoint("orders-to-big")
    checkpoint.mkdir(parents=True)
    if by_command:
        start.during_compile = start.directory.request_stop
    status = start.run(fresh=None)
    assert (status.state, status.message) == ("stopped", start.stop.reason)
    assert checkpoint.is_dir()
    assert "--fresh has cleared nothing" in start.out.getvalue()


@pytest.mark.parametrize("fresh", [(), None])
def test_a_stop_reports_the_unfinished_fresh_start_of_a_killed_run(
    start: Start, fresh: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FreshStart, "perform", lambda *args: pytest.fail("a stopped run has cleared outputs"))
    monkeypatch.setattr(launching, "plan_fresh_start", lambda *args: FreshStart(None))
    start.directory.path.mkdir()
    write_json(start.directory.path / fresh_start.PLAN, {"queries": None, "topics": ["large"], "tables": []})
    start.run(fresh=fresh)
    assert "cleared nothing" not in start.out.getvalue()
    assert "the --fresh of an earlier run is still unfinished" in start.out.getvalue()


def test_an_interrupted_start_keeps_the_status_of_the_last_run(start: Start) -> None:
    """Ctrl-C while Spark starts is a KeyboardInterrupt, not yet a request to stop."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    start.directory.write_status(LAST.to_json())
    start.during_spark_start = interrupt
    with pytest.raises(KeyboardInterrupt):
        start.run()
    last = start.last_status()
    assert last.note is not None
    assert last.note.endswith("failed: interrupted by Ctrl-C")
    assert replace(last, note=None) == LAST


@pytest.mark.parametrize(("pressed", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (EOFError, PipelineError)])
def test_only_ctrl_c_at_a_question_is_an_interruption(
    pressed: type[BaseException], raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """click.Abort also comes from Ctrl-D, which ends the input."""

    def read_line(prompt: str) -> str:
        raise pressed

    monkeypatch.setattr(click.termui, "visible_prompt_func", read_line)
    monkeypatch.setattr(run_command.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(run_command.sys, "stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=lambda: None))
    with pytest.raises(raised):
        run_command._decide(Outputs(topics=("orders",)))


def test_the_reason_of_a_failed_start_hides_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = 'kafka:\n  sasl.jaas.config: \'module required username="u" password="hunter2";\'\n'
    start = Start(tmp_path, monkeypatch, password + WHOLE_PIPELINE)

    def fail() -> None:
        raise PipelineError("the server refused hunter2")

    start.during_compile = fail
    with pytest.raises(PipelineError):
        start.run()
    message = start.last_status().message
    assert message is not None
    assert message.startswith("the server refused")
    assert "hunter2" not in message


def test_an_error_without_text_is_reported_by_its_type(start: Start) -> None:
    def fail() -> None:
        raise AssertionError

    start.during_compile = fail
    with pytest.raises(AssertionError):
        start.run()
    assert start.last_status().message == "AssertionError"


@pytest.mark.parametrize(("sinks", "expected"), [(["a+b"], ["a", "b"]), (["b"], ["b"]), (["a", "a+b"], ["a", "b"])])
def test_sinks_of_a_batch_can_be_chosen_by_the_query_that_they_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: list[str], expected: list[str]
) -> None:
    start = Start(tmp_path, monkeypatch, SHARED)
    start.run("BATCH", only=sinks)
    assert start.chosen == expected


def test_a_batch_refuses_sinks_that_share_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Start(tmp_path, monkeypatch, SHARED)
    with pytest.raises(PipelineError, match=r"there is no sink b\+c"):
        start.run("BATCH", only=["b+c"])


def test_a_second_batch_run_is_refused(start: Start) -> None:
    """The message says --batch, because `status` and `stop` do not see such a run. A continuous run is not refused."""
    with launching.batch_directory(start.directory).locked(Holder(7, "h", "noon")):
        with pytest.raises(StateRefused) as refused:
            start.run("BATCH")
        assert str(refused.value) == "a --batch run of state is going on already, by process 7 on h since noon"
        start.run()


@pytest.mark.parametrize("name", ["identity.json", "fresh.json", "checkpoints/orders-to-big/metadata"])
@pytest.mark.parametrize("text", ["{", "{}"])
def test_fresh_starts_over_despite_damaged_files(
    start: Start, name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a damaged file recommends --fresh, so --fresh must not fail because of that file."""
    monkeypatch.setattr(fresh_start, "_nonempty_outputs", lambda *args: Outputs())
    monkeypatch.setattr(fresh_start, "_delete_groups", lambda *args: None)
    start.during_compile = lambda: None
    monkeypatch.setattr(launching, "Run", lambda *args: SimpleNamespace(to_the_end=lambda: LAST))
    write_json(start.directory.checkpoint("orders-to-big") / "offsets" / "0", {})
    (start.directory.path / name).write_text(text)
    if text == "{" or name == "identity.json":
        with pytest.raises(StateRefused, match="--fresh"):
            start.run()
    assert start.run(fresh=None) == LAST
    assert start.directory.queries() == []
    start.run()


def test_a_run_finishes_the_removal_of_checkpoints(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed run has renamed the checkpoint already: to the next one, its query has none."""
    monkeypatch.setattr(fresh_start, "_delete_groups", lambda *args: None)
    monkeypatch.setattr(launching, "Run", lambda *args: SimpleNamespace(to_the_end=lambda: LAST))
    start.during_compile = lambda: None
    write_json(start.directory.path / fresh_start.PLAN, {"queries": ["orders-to-big"], "topics": [], "tables": []})
    write_json(start.directory.checkpoint(".forgotten-orders-to-big") / "metadata", {"id": "7"})
    start.run()
    assert list(start.directory.checkpoints.iterdir()) == []


def test_a_damaged_status_is_replaced(start: Start) -> None:
    start.directory.path.mkdir()
    (start.directory.path / "status.json").write_text("{")
    run_command._refuse_same_name(Chosen(start.pipeline.file, {}, None, start.directory.path))
    start.run()
    assert start.last_status().state == "stopped"
