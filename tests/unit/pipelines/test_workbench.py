"""The workbench without Spark: changed files, questions to a running `moldau pipeline dev` over a socket, previews."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest
from harness.patience import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st
from marked_yaml import WHOLE_PIPELINE, load_text

from moldau import __version__
from moldau.cli.pipeline.desk import preview_lines
from moldau.pipelines.cases.comparing import Difference
from moldau.pipelines.cases.files import Case
from moldau.pipelines.cases.result import CaseResult
from moldau.pipelines.problems import InvalidPipeline, PipelineError, Problem, Severity
from moldau.pipelines.spec import Pipeline, Place
from moldau.pipelines.workbench import questions
from moldau.pipelines.workbench.answers import (
    preview_from_json,
    problem_from_json,
    problem_to_json,
    result_to_json,
    results_from_json,
)
from moldau.pipelines.workbench.changes import FILES_MAX, changed, snapshot
from moldau.pipelines.workbench.preview import Preview


def test_changes_in_the_files_of_a_pipeline_are_found(tmp_path: Path) -> None:
    file, step, case = tmp_path / "p.yaml", tmp_path / "detect.py", tmp_path / "tests" / "one" / "input" / "a.jsonl"
    case.parent.mkdir(parents=True)
    for path in (file, step, case, tmp_path / "notes.md"):
        path.write_text("1")
    (tmp_path / ".moldau").mkdir()
    before = snapshot(file)
    assert set(before) == {file, step, case}
    assert changed(before, snapshot(file)) == []
    step.write_text("12")
    case.unlink()
    (tmp_path / "new.yaml").write_text("x")
    (tmp_path / "notes.md").write_text("2")
    (tmp_path / ".moldau" / "status.json").write_text("{}")
    assert changed(before, snapshot(file)) == [step, tmp_path / "new.yaml", case]
    file.unlink()
    assert file in changed(before, snapshot(file))


def test_the_number_of_polled_files_is_limited(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("")
    for number in range(FILES_MAX + 10):
        (tmp_path / f"{number}.json").touch()
    files = snapshot(file)
    assert (len(files), file in files) == (FILES_MAX, True)


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "p.yaml"


Answer = Callable[[Mapping[str, Any], Callable[[str], None]], Mapping[str, Any]]


@contextmanager
def answering(file: Path, answer: Answer) -> Iterator[None]:
    """Answer one question for the pipeline file in a thread."""
    ready = threading.Event()

    def serve() -> None:
        with questions.listening(file) as listener:
            assert listener is not None
            ready.set()
            while not questions.answer_one(listener, answer, 0.05):
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield
    thread.join()


def test_ask_returns_none_without_a_running_dev(file: Path) -> None:
    assert questions.ask(file, "check", {}, pytest.fail) is None
    path = questions.socket_path(file)
    assert path is not None
    with socket.socket(socket.AF_UNIX) as dead:  # left by a `dev` that was killed
        dead.bind(str(path))
    assert questions.ask(file, "check", {}, pytest.fail) is None
    with questions.listening(file) as listener:
        assert listener is not None
        with pytest.raises(PipelineError, match="already running"), questions.listening(file):
            pass
    assert not path.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_dev_starts_on_a_file_system_without_locks(file: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def try_lock(fd: int) -> bool:
        raise OSError(code, "no locks here")

    monkeypatch.setattr(questions, "try_lock", try_lock)
    with questions.listening(file) as listener:
        assert listener is not None


def test_a_question_gets_phases_and_an_answer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUE", "blue")
    phases: list[str] = []

    def answer(question: Mapping[str, Any], on_phase: Callable[[str], None]) -> Mapping[str, Any]:
        assert (question["do"], question["settings"], question["cases"]) == ("test", {"a": "b"}, ["one"])
        assert question["environ"]["HUE"] == "blue"
        on_phase("case one")
        return {"results": []}

    with answering(file, answer):
        assert questions.ask(file, "test", {"a": "b"}, phases.append, {"cases": ["one"]}) == {"results": []}
    assert phases == ["waiting for the Spark of `moldau pipeline dev` to finish its current work", "case one"]


def test_an_error_in_dev_is_returned_as_the_answer(file: Path) -> None:
    def refuse(question: Mapping[str, Any], on_phase: Callable[[str], None]) -> Mapping[str, Any]:
        raise PipelineError("there is no test case two")

    with answering(file, refuse):
        assert questions.ask(file, "test", {}, lambda _: None, {"cases": ["two"]}) == {
            "failed": "there is no test case two"
        }


def test_an_unexpected_error_does_not_stop_dev(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(question: Mapping[str, Any], on_phase: Callable[[str], None]) -> Mapping[str, Any]:
        os.fsencode(question["case"])
        return {"previews": []}

    with answering(file, fail):
        failed = questions.ask(file, "preview", {}, lambda _: None, {"case": "\ud800"})
    assert failed is not None
    assert failed["failed"].startswith("UnicodeEncodeError: ")
    assert "UnicodeEncodeError" in caplog.text


@pytest.mark.parametrize("sent", [b"", b"no JSON\n", b"[]\n", b'{"version": "0.0.0-other"}\n'])
def test_a_malformed_question_does_not_stop_dev(file: Path, sent: bytes) -> None:
    path = questions.socket_path(file)
    assert path is not None
    with answering(file, lambda question, on_phase: {"problems": []}):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
            caller.sendall(sent)
            caller.shutdown(socket.SHUT_WR)
            response = caller.makefile().read()
            assert response == (json.dumps({"other": __version__}) + "\n" if b"other" in sent else "")
        assert questions.ask(file, "check", {}, lambda _: None) == {"problems": []}


@pytest.mark.parametrize("sent", [b'{"problems": [{"mess', b'{"phase": "case one"}\n{"resu', b"\xff\n"])
def test_ask_returns_none_if_dev_dies_while_it_answers(file: Path, sent: bytes) -> None:
    def die() -> None:
        caller, _ = listener.accept()
        with caller:
            caller.makefile("rb").readline()
            caller.sendall(sent)

    with questions.listening(file) as listener:
        assert listener is not None
        thread = threading.Thread(target=die)
        thread.start()
        assert questions.ask(file, "check", {}, lambda _: None) is None
        thread.join()


def test_a_caller_that_does_not_read_does_not_block_dev(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a caller that is stopped with Ctrl-Z, if the answer is larger than the buffers of the socket."""
    monkeypatch.setattr(questions, "CLIENT_TIMEOUT_S", 0.1)
    path = questions.socket_path(file)
    assert path is not None

    def answer_twice() -> None:
        for _ in range(2):
            questions.answer_one(listener, lambda question, on_phase: {"problems": ["x" * (8 << 20)]}, PATIENCE_S)

    with questions.listening(file) as listener, socket.socket(socket.AF_UNIX) as stopped:
        assert listener is not None
        stopped.connect(str(path))
        stopped.sendall(json.dumps({"version": __version__}).encode() + b"\n")
        thread = threading.Thread(target=answer_twice, daemon=True)
        thread.start()
        with socket.socket(socket.AF_UNIX) as bad:
            bad.connect(str(path))
            bad.sendall(b"no question\n")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_of_two_devs_that_start_together_one_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins after the first has found no other, and before it listens."""
    refused: list[str] = []
    unlink = Path.unlink

    def start_another(path: Path, missing_ok: bool = False) -> None:
        monkeypatch.setattr(Path, "unlink", unlink)
        with pytest.raises(PipelineError, match="already running"), questions.listening(file):
            pass
        refused.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", start_another)
    with questions.listening(file):
        assert len(refused) == 1
        with pytest.raises(PipelineError, match="already running"), questions.listening(file):
            pass


def test_socket_paths_for_non_utf8_and_long_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert questions.socket_path(Path(os.fsdecode(b"/caf\xe9/p.yaml"))) is not None
    for letter, is_short in (("a", True), ("é", False)):  # as many letters as bytes are allowed
        directory = Path("/" + letter * (questions.PATH_LENGTH_MAX - len(f"//dev-{'0' * 16}.sock")))
        monkeypatch.setattr(questions, "private_directories", lambda directory=directory: [directory])
        assert (questions.socket_path(tmp_path) is not None) == is_short


def test_only_this_user_can_reach_the_socket(file: Path) -> None:
    path = questions.socket_path(file)
    assert path is not None
    assert not path.parent.stat().st_mode & 0o022
    assert path.parent.stat().st_uid == os.getuid()


texts = st.text(max_size=5)


@given(
    texts,
    st.none() | st.builds(Place, file=texts, line=st.integers(1), column=st.integers(1)),
    st.none() | texts,
    st.sampled_from(get_args(Severity)),
)
def test_problems_survive_json(message: str, place: Place | None, hint: str | None, severity: Severity) -> None:
    problem = Problem(message, place, hint, severity)
    assert problem_from_json(json.loads(json.dumps(problem_to_json(problem)))) == problem


def test_results_survive_json(tmp_path: Path) -> None:
    cases = [Case("one", tmp_path, expected={"s": tmp_path}), Case("two", tmp_path)]
    difference = Difference("s", ({"value": {"a": 1}},), ({"value": None},))
    results = [
        CaseResult(
            case=cases[1], seconds=1.5, differences=(difference,), outputs={"s": [{"key": None}]}, closed=("s",)
        ),
        CaseResult(case=cases[0], seconds=0.1, error="no", story="all of it", outputs={}),
    ]
    assert results_from_json(json.loads(json.dumps([*map(result_to_json, results)])), cases) == results


def test_previews_survive_json() -> None:
    preview = Preview(name="s", columns=("a", "b"), rows=(("1", None),), has_more=True, seconds=0.5, error="e")
    assert preview_from_json(json.loads(json.dumps(asdict(preview)))) == preview


# --- output -----------------------------------------------------------------------------------------------------------


def test_a_preview_as_text() -> None:
    rows = (("1", "a\nb"), (None, "x" * 50))
    assert preview_lines(Preview(name="s", columns=("n", "text"), rows=rows, has_more=True, seconds=0.26)) == [
        "s: the first 2 rows, 0.3 s",
        "  n  text",
        "  1  a b",
        f"  -  {'x' * 39}…",
    ]
    assert preview_lines(Preview(name="s", seconds=1.0)) == ["s: no rows, 1.0 s"]
    assert preview_lines(Preview(name="s", columns=("n",), rows=(("1",),))) == ["s: 1 row, 0.0 s", "  n", "  1"]
    assert preview_lines(Preview(name="s", error="divided by zero")) == ["s: failed after 0.0 s", "  divided by zero"]


def test_a_notebook_shows_a_message_instead_of_a_traceback() -> None:
    assert PipelineError("no such step")._render_traceback_() == ["no such step"]
    (line,) = InvalidPipeline([Problem("wrong", None)])._render_traceback_()
    assert line.endswith("wrong")


def test_a_preview_that_cannot_be_compiled_leaves_nothing_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moldau.pipelines.workbench import previewing

    cached: list[Frame] = []

    class Frame:
        def cache(self) -> Frame:
            cached.append(self)
            return self

        def unpersist(self) -> None:
            cached.remove(self)

    def refuse(pipeline: Pipeline, spark: object, mode: object, records: Any) -> None:
        for source in pipeline.sources.values():
            records(spark, source)
        assert cached
        raise InvalidPipeline([Problem("wrong SQL", None)])

    monkeypatch.setattr(previewing, "compile_pipeline", refuse)
    monkeypatch.setattr(previewing, "_case_records", lambda *_: Frame())
    no_spark: Any = None
    with pytest.raises(InvalidPipeline):
        previewing.Sampled(load_text(tmp_path, WHOLE_PIPELINE), no_spark, Case("first", tmp_path))
    assert cached == []
