"""A pipeline that gets another name does not write everything again without being asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

from moldau.pipelines.reading.loading import load
from moldau.pipelines.running import identity
from moldau.pipelines.running.identity import WrongCheckpoint
from moldau.pipelines.running.renamed_pipeline import refuse_if_renamed, written_before
from moldau.pipelines.running.state_directory import StateDirectory, default_directory, write_json
from moldau.pipelines.spec import Pipeline

BIKES = """
name: bikes
sources:
  rentals: {topic: rentals, schema: id string}
sinks:
  - {name: takings, from: rentals, topic: bikes.takings}
  - {name: history, from: rentals, table: lake/history, format: parquet}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file that has run as `bikes`."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(BIKES)
    add_run(load(file))
    return file


def add_run(pipeline: Pipeline, file: Path | None = None) -> StateDirectory:
    """Write the state of a run in which each query has planned a batch."""
    directory = default_directory(pipeline.file, pipeline.name)
    queries = identity.of_pipeline(pipeline)
    for name in queries:
        (directory.checkpoint(name) / "offsets").mkdir(parents=True)
        (directory.checkpoint(name) / "offsets" / "0").touch()
    identity.record(directory, pipeline.name, queries, lambda: "abc")
    directory.write_status({"file": str(file or pipeline.file)})
    return directory


def change(file: Path, before: str, after: str) -> Pipeline:
    file.write_text(file.read_text().replace(before, after))
    return load(file)


def check(pipeline: Pipeline, forgotten: list[str] | None) -> None:
    directory = default_directory(pipeline.file, pipeline.name)
    refuse_if_renamed(directory, pipeline, identity.of_pipeline(pipeline), forgotten, "pipeline.yaml")


def is_refused(pipeline: Pipeline) -> bool:
    directory = default_directory(pipeline.file, pipeline.name)
    return bool(written_before(directory, pipeline, identity.of_pipeline(pipeline)))


def test_a_renamed_pipeline_is_refused_with_all_its_outputs(file: Path) -> None:
    renamed = change(file, "name: bikes\n", "name: bikes2\n")
    with pytest.raises(WrongCheckpoint) as refused:
        check(renamed, [])
    state = default_directory(file, "bikes").path
    assert str(refused.value) == (
        f"this pipeline was called bikes when it ran before (its checkpoints are in {state});"
        " as bikes2 it has none, so rentals.dead-letters, takings, history would write everything again to topic"
        " rentals.dead, topic bikes.takings, table lake/history; name it bikes again, or run"
        " `moldau pipeline run pipeline.yaml --fresh` to write everything once more; --existing clear empties the"
        " topics and makes new tables before"
    )
    check(renamed, None)
    with pytest.raises(WrongCheckpoint, match=r"so rentals\.dead-letters, history would write"):
        check(renamed, ["takings"])


def test_a_query_that_has_a_checkpoint_under_the_new_name_continues(file: Path) -> None:
    renamed = change(file, "name: bikes\n", "name: bikes2\n")
    add_run(renamed)
    check(renamed, [])


def test_a_file_that_was_renamed_together_with_its_pipeline_is_refused(file: Path) -> None:
    assert is_refused(change(file.rename(file.with_name("bikes2.yaml")), "name: bikes\n", "name: bikes2\n"))


def test_a_folder_that_was_moved_is_the_same_folder(file: Path, tmp_path: Path) -> None:
    state = default_directory(file, "bikes")
    state.write_status({"file": "/elsewhere/pipeline.yaml"})
    assert is_refused(change(file, "name: bikes\n", "name: bikes2\n"))
    (tmp_path / "other.yaml").touch()
    state.write_status({"file": "/elsewhere/other.yaml"})
    assert not is_refused(load(file))


@pytest.mark.parametrize(
    ("bootstrap", "is_same"),
    [
        (None, True), ("prod:9092", True), ("x:1, Prod:9092", True), ("SASL_SSL://prod:9092,", True),
        ("staging:9092", False), ("prod:9093", False), ("staging:9092,", False),
    ],
)  # fmt: skip
def test_one_file_may_serve_several_clusters(file: Path, bootstrap: str | None, is_same: bool) -> None:
    default_directory(file, "bikes").write_status({"file": str(file), "bootstrap": bootstrap})
    renamed = change(file, "name: bikes\n", "name: bikes2\nbootstrap: 'prod:9092,'\n")
    assert is_refused(renamed) == is_same


def test_another_state_directory_is_refused_with_the_path_of_the_former_one(file: Path) -> None:
    pipeline = load(file)
    former = default_directory(file, "bikes").path
    other = StateDirectory(former.with_name("other"))
    with pytest.raises(WrongCheckpoint) as refused:
        refuse_if_renamed(other, pipeline, identity.of_pipeline(pipeline), [], "pipeline.yaml")
    assert str(refused.value).startswith(
        f"this pipeline ran before with its checkpoints in {former}; {other.path} has none of rentals.dead-letters,"
    )
    assert f"; run with --state {former}, or run `" in str(refused.value)


def test_unreadable_files_count_as_missing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors are simulated, because the tests may run as root, who may read everything."""
    renamed = change(file, "name: bikes\n", "name: bikes2\n")
    default_directory(file, "bikes").write_status({"file": "/elsewhere/pipeline.yaml"})
    stat = os.stat

    def refuse_other(path: str | Path, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(path).startswith("/elsewhere"):
            raise PermissionError(13, "Permission denied")
        return stat(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refuse_other)
        assert is_refused(renamed)

    def refuse(path: Path) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert not is_refused(renamed)


@pytest.mark.parametrize("status", [None, {}, {"file": "other.yaml"}])
def test_the_state_of_another_file_does_not_matter(
    file: Path, status: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    Path("other.yaml").touch()
    state = default_directory(file, "bikes")
    (state.path / "status.json").unlink()
    if status is not None:
        state.write_status(status)
    assert not is_refused(change(file, "name: bikes\n", "name: bikes2\n"))


@pytest.mark.parametrize(
    ("before", "after"),
    [("topic: rentals, ", "topic: returns, dead_letter: rentals.dead, "), ("bikes.takings", "x}  # ")],
)
def test_only_the_same_records_in_the_same_outputs_are_refused(file: Path, before: str, after: str) -> None:
    """One file may describe several pipelines, by variables, which write one topic from different sources."""
    renamed = change(change(file, "name: bikes\n", "name: bikes2\n").file, before, after)
    directory = default_directory(file, "bikes2")
    queries = {"takings": identity.of_pipeline(renamed)["takings"]}
    assert written_before(directory, renamed, queries) == []


def test_a_query_that_never_planned_a_batch_is_not_refused(file: Path) -> None:
    for offsets in default_directory(file, "bikes").checkpoints.glob("*/offsets/0"):
        offsets.unlink()
    assert not is_refused(change(file, "name: bikes\n", "name: bikes2\n"))


def test_damaged_state_of_other_pipelines_is_ignored(file: Path) -> None:
    write_json(default_directory(file, "broken").path / "status.json", {"file": str(file)})
    (default_directory(file, "broken").path / "identity.json").write_text("no JSON")
    write_json(default_directory(file, "bare").path / "status.json", {"file": str(file)})
    write_json(default_directory(file, "bare").path / "identity.json", {})
    (default_directory(file, "unreadable").path / "status.json").mkdir(parents=True)
    assert is_refused(change(file, "name: bikes\n", "name: bikes2\n"))
