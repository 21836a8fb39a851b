"""Sinks select the queries of a run, and the checkpoints that it removes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from marked_yaml import WHOLE_PIPELINE, load_text

from moldau.pipelines.problems import PipelineError
from moldau.pipelines.running import launching
from moldau.pipelines.running.identity import QueryIdentity
from moldau.pipelines.running.launching import choose_queries, queries_to_forget
from moldau.pipelines.running.progress import QueryStatus, RunStatus
from moldau.pipelines.running.state_directory import StateDirectory

QUERIES = {name: QueryIdentity({}) for name in ("events.dead-letters", "counts", "by-type+lake")}


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (None, list(QUERIES)),
        ([], []),
        (["counts"], ["counts"]),
        (["lake", "events.dead-letters", "by-type"], ["events.dead-letters", "by-type+lake"]),
        (["by-type+lake"], ["by-type+lake"]),
    ],
)
def test_named_sinks_select_their_queries(only: Collection[str] | None, expected: list[str]) -> None:
    assert list(choose_queries(QUERIES, only)) == expected


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["count"], "there is no sink count, did you mean 'counts'?"),
        (["zebra"], "there is no sink zebra; there are events.dead-letters, counts, by-type, lake"),
        (["lake"], "sink by-type is written by the same query (by-type+lake): name it too"),
    ],
)
def test_unknown_or_incomplete_sink_names_are_refused(only: list[str], message: str) -> None:
    with pytest.raises(PipelineError) as refused:
        choose_queries(QUERIES, only)
    assert str(refused.value) == message


def test_a_query_that_is_no_longer_in_the_pipeline_is_forgotten_by_its_name(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    directory.checkpoint("lake").mkdir(parents=True)
    assert queries_to_forget(QUERIES, ["lake"], directory) == ["lake"]
    assert queries_to_forget(QUERIES, ["lake", "counts"], directory) == ["lake", "counts"]
    with pytest.raises(PipelineError, match="name it too"):
        queries_to_forget(QUERIES, ["by-type"], directory)


def test_a_refused_run_keeps_the_status_of_the_last_one_with_a_note(tmp_path: Path) -> None:
    """The refused run has not changed positions, nor how the last run ended."""
    directory, counts = StateDirectory(tmp_path), QueryStatus(name="counts", state="stopped", lag_records=7)
    last = RunStatus(
        pipeline="p", mode="m", state="stopped", pid=1, host="h", started="a", updated="b", queries=(counts,)
    )
    directory.write_status(last.to_json())
    starting = replace(last, state="starting", started="c", queries=())
    with pytest.raises(PipelineError, match="refused"), launching._record_failed_start(directory, starting):
        raise PipelineError("refused")
    status = RunStatus.from_json(directory.read_status() or {})
    assert status == replace(last, note="a later start, at c, failed: refused")


def test_a_refused_first_run_has_failed(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    starting = RunStatus(pipeline="p", mode="m", state="starting", pid=1, host="h", started="a", updated="b")
    with pytest.raises(PipelineError, match="refused"), launching._record_failed_start(directory, starting):
        raise PipelineError("refused")
    status = RunStatus.from_json(directory.read_status() or {})
    assert (status.state, status.message, status.queries) == ("failed", "refused", ())


@pytest.mark.parametrize(("name", "count"), [("counts", 1), ("sensors", 0)])
def test_a_run_without_the_dead_letter_query_of_its_source_gives_a_warning(
    tmp_path: Path, name: str, count: int
) -> None:
    queries = {
        "events.dead-letters": QueryIdentity({"events": ["topic e"]}),
        "counts": QueryIdentity({"events": ["topic e"]}),
        "sensors": QueryIdentity({"status": ["topic s"]}),
    }
    pipeline = load_text(tmp_path, WHOLE_PIPELINE)
    warnings = list(launching._warnings(pipeline, queries, {name: queries[name]}, False))
    assert len(warnings) == count
    assert all("bad records of source events are left out" in each for each in warnings)
