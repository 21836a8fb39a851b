"""A streaming query that is started again: with another plan, if that can be made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.pipelines.problems import PipelineError
from moldau.pipelines.running import jobs
from moldau.pipelines.running.state_directory import StateDirectory


def test_where_no_new_plan_can_be_made_the_old_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a file that the plan needs is being replaced: that passes, and must not end the run."""
    started: list[Any] = []
    monkeypatch.setattr(jobs, "start", lambda flow, checkpoint, until_caught_up: started.append(flow.plan))
    outcomes: list[Any] = [PipelineError("the file is not there"), "second"]

    def plan(again: bool) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        assert again
        return SimpleNamespace(flows=[SimpleNamespace(name="a", plan=outcome, mode="append")])

    first: Any = SimpleNamespace(name="a", plan="first", mode="append")
    stream = jobs.Stream(first, plan, StateDirectory(tmp_path), until_caught_up=False)
    stream.start()
    stream.replan()
    for _ in range(3):
        stream.start()
    assert started == ["first", "first", "second", "second"]
