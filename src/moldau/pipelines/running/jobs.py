"""Makes jobs for Run from the flows of a compiled pipeline: streaming queries, or batch writes that look like them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from moldau.backends.progress_files import Tally, forget_tallies, forget_waiting, read_tally, read_waiting
from moldau.pipelines.planning.compiling import Compiled, Flow, Mode, start, write_batch
from moldau.pipelines.planning.sql_errors import SPARK_ERRORS
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.queries import sinks_of
from moldau.pipelines.running.progress import Offsets
from moldau.pipelines.running.run import Job, Query, utc_now
from moldau.pipelines.running.spark_checkpoint import SparkCheckpoint
from moldau.pipelines.running.state_directory import StateDirectory

Compile = Callable[[bool], Compiled]
"""Compiles the pipeline. The argument says whether to load its Python steps from their files, even if this process has
loaded them before: True when a run begins, False for a new plan in the same run."""
CANCEL_EVERY_S: Final = 0.2
"""How often a batch write that is stopped is cancelled until it ends."""


def jobs(compile_flows: Compile, directory: StateDirectory, mode: Mode, only: Collection[str]) -> list[Job]:
    """Return a job for each flow whose name is in `only`, in the order of the pipeline. A job calls
    `compile_flows` again when it needs a new plan."""
    compiled = compile_flows(True)
    flows = [flow for flow in compiled.flows if flow.name in only]
    assert {flow.name for flow in flows} == set(only), (
        "the identity of a pipeline names the queries that it is compiled to"
    )
    if mode is Mode.BATCH:
        run_id = uuid.uuid4().hex  # the same for all attempts: a table that already has the batch skips it
        return [_batch_job(compiled, flow, run_id, directory.batch_state(flow.name)) for flow in flows]
    until_caught_up = mode is Mode.UNTIL_CAUGHT_UP
    tracker = compiled.session.sparkContext.statusTracker()

    def has_submitted(query: Any) -> bool:
        return bool(tracker.getJobIdsForGroup(str(query.runId)))

    streams = [Stream(flow, compile_flows, directory, until_caught_up) for flow in flows]
    return [
        Job(
            stream.name,
            stream.start,
            has_submitted,
            stream.discard_plan,
            stream.position,
            stream.waiting,
            stream.tallies,
        )
        for stream in streams
    ]


def activate(session: SparkSession) -> None:
    """Make it the session of this thread: Spark looks up the formats of Python packages only in the active session."""
    session_class: Any = SparkSession
    session_class._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)


def _batch_job(compiled: Compiled, flow: Flow, run_id: str, state: Path) -> Job:
    start = partial(_start_batch_write, compiled, flow, run_id, state)
    return Job(flow.name, start, waiting=lambda: read_waiting(_states_of(state)))


def _states_of(state: Path) -> list[Path]:
    """Return where tasks of a query may note that they wait: its own directory, and those of sinks that share it."""
    return [state, *state.glob("sinks/*")]


def _start_batch_write(compiled: Compiled, flow: Flow, run_id: str, state: Path) -> Query:
    context = compiled.session.sparkContext
    forget_waiting(_states_of(state))

    def write() -> int:
        activate(compiled.session)
        context.setJobGroup(run_id + flow.name, flow.name, interruptOnCancel=True)
        return write_batch(flow, run_id, state)

    return BatchWrite(write, cancel=lambda: context.cancelJobGroup(run_id + flow.name))


class Stream:
    """A flow as a streaming query that can be started again."""

    def __init__(self, flow: Flow, compile_flows: Compile, directory: StateDirectory, until_caught_up: bool) -> None:
        self.name = flow.name
        self._flow, self._is_stale = flow, False
        self._compile_flows, self._until_caught_up = compile_flows, until_caught_up
        self._checkpoint = directory.checkpoint(flow.name)
        forget_tallies(_states_of(self._checkpoint))

    def start(self) -> Query:
        if self._is_stale:
            # If this fails, for example because a file is being replaced, use the old plan.
            with suppress(PipelineError, *SPARK_ERRORS):
                (self._flow,) = (flow for flow in self._compile_flows(False).flows if flow.name == self.name)
                self._is_stale = False
        if self._flow.mode != "complete":  # in mode complete every batch writes all windows: none is owed
            SparkCheckpoint(self._checkpoint).plan_owed_batch()
        forget_waiting(_states_of(self._checkpoint))
        return start(self._flow, self._checkpoint, self._until_caught_up)

    def position(self) -> Offsets:
        return SparkCheckpoint(self._checkpoint).position()

    def waiting(self) -> str | None:
        return read_waiting(_states_of(self._checkpoint))

    def tallies(self) -> Mapping[str, Tally]:
        """Return what the tasks noted, by sink."""
        names = sinks_of(self.name)
        states = {name: self._checkpoint / "sinks" / name if len(names) > 1 else self._checkpoint for name in names}
        return {name: tally for name, state in states.items() if (tally := read_tally(state)) is not None}

    def discard_plan(self) -> None:
        self._is_stale = True


class BatchWrite:
    """A batch write in its own thread, with the interface of a streaming query that runs one batch."""

    def __init__(self, write: Callable[[], int], cancel: Callable[[], None]) -> None:
        self._write, self._cancel = write, cancel
        self._began_s = time.monotonic()
        self._error: Exception | None = None
        self._report: dict[str, Any] | None = None
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._run, name="batch write", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = utc_now()
        try:
            rows = self._write()
        except Exception as error:  # exception() returns it, as for a streaming query
            self._error = error
            return
        took_ms = int((time.monotonic() - self._began_s) * 1000)
        self._report = {
            "batchId": 0,
            "timestamp": began,
            "durationMs": {"triggerExecution": took_ms, "addBatch": took_ms},
            "sink": {"numOutputRows": rows},
        }

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    @property
    def status(self) -> Mapping[str, Any]:
        return {"isTriggerActive": self.isActive, "message": "Processing the range"}

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:
        return self._report

    @property
    def recentProgress(self) -> Sequence[Mapping[str, Any]]:
        return [self._report] if self._report else []

    def exception(self) -> Exception | None:
        return None if self._is_cancelled else self._error

    def stop(self) -> None:
        """Cancel the write and wait until it has ended. It may have ended before it could be cancelled: then
        `lastProgress` has its report."""
        while self._thread.is_alive():
            self._is_cancelled = True
            self._cancel()  # again and again: it cancels Spark's jobs that are running now, not those to come
            self._thread.join(CANCEL_EVERY_S)
