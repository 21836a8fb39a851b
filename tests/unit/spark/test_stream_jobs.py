"""A restarted streaming query, with a new plan if one can be compiled; a batch write that is stopped."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.patience import PATIENCE_S, wait_until
from py4j.protocol import Py4JJavaError

from moldau.backends.progress_files import note_waiting
from moldau.pipelines.planning.compiling import Mode
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.running import jobs
from moldau.pipelines.running.state_directory import StateDirectory


def test_the_old_plan_is_used_if_no_new_one_can_be_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a file that the plan needs is being replaced: a temporary error must not end the run."""
    started: list[Any] = []
    monkeypatch.setattr(jobs, "start", lambda flow, checkpoint, until_caught_up: started.append(flow.plan))
    java_exception: Any = SimpleNamespace(_target_id="o1", _gateway_client=None)
    spark_exception = Py4JJavaError("a SparkException", java_exception)
    outcomes: list[Any] = [PipelineError("the file is not there"), spark_exception, "second"]

    def compile_flows(reload_steps: bool) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        assert not reload_steps
        return SimpleNamespace(flows=[SimpleNamespace(name="a", plan=outcome, mode="append")])

    first: Any = SimpleNamespace(name="a", plan="first", mode="append")
    stream = jobs.Stream(first, compile_flows, StateDirectory(tmp_path), until_caught_up=False)
    stream.start()
    stream.discard_plan()
    for _ in range(4):
        stream.start()
    assert started == ["first", "first", "first", "second", "second"]


class Jobs:
    """Spark jobs of a batch write: a cancellation reaches only those that run."""

    def __init__(self) -> None:
        self.first_cancellation, self._running = threading.Event(), threading.Event()
        self._cancelled = threading.Event()

    def run(self) -> None:
        self._running.set()
        if self._cancelled.wait(PATIENCE_S):
            raise RuntimeError("the job is cancelled")

    def cancel(self) -> None:
        if self._running.is_set():
            self._cancelled.set()
        self.first_cancellation.set()


def test_a_batch_write_stopped_during_planning_writes_nothing() -> None:
    spark_jobs = Jobs()

    def write() -> int:
        assert spark_jobs.first_cancellation.wait(PATIENCE_S), "it is stopped during planning"
        spark_jobs.run()
        return 7

    batch_write = jobs.BatchWrite(write, spark_jobs.cancel)
    batch_write.stop()
    assert not batch_write.isActive
    assert batch_write.lastProgress is None
    assert batch_write.exception() is None


def test_queries_of_a_batch_run_note_what_they_wait_for_in_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: dict[str, Path] = {}
    release = threading.Event()

    def write_batch(flow: Any, run_id: str, state: Path) -> int:
        states[flow.name] = state
        note_waiting(state / "sinks" / "shared", 0, (datetime.now(UTC), f"{flow.name} is away"))
        assert release.wait(PATIENCE_S)
        return 1

    context = SimpleNamespace(setJobGroup=lambda *_, **__: None)
    compiled: Any = SimpleNamespace(
        flows=[SimpleNamespace(name=name) for name in ("a", "b")], session=SimpleNamespace(sparkContext=context)
    )
    monkeypatch.setattr(jobs, "write_batch", write_batch)
    monkeypatch.setattr(jobs, "activate", lambda session: None)
    made = jobs.jobs(lambda reload_steps: compiled, StateDirectory(tmp_path, True), Mode.BATCH, ["a", "b"])
    queries = [job.start() for job in made]
    for job in made:
        waiting = wait_until(job.waiting, f"{job.name} says that it waits")
        assert waiting is not None
        assert waiting.endswith(f"{job.name} is away")
    release.set()
    wait_until(lambda: not any(query.isActive for query in queries), "both end")
    assert states["a"] != states["b"]
