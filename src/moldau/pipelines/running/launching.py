"""One run of a pipeline from the lock to the last look: what must hold before Spark is started, then Spark, then Run.

The order matters to whoever waits: a second run, a checkpoint of something else and a missing topic are told before the
seconds that Spark takes to start. Whoever calls brings the session, the view and the wish to stop.
"""

from __future__ import annotations

import os
import random
import socket
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from moldau.pipelines.problems import PipelineError, did_you_mean
from moldau.pipelines.running import identity, topics
from moldau.pipelines.running.identity import QueryIdentity
from moldau.pipelines.running.positions import Positions
from moldau.pipelines.running.progress import RunStatus
from moldau.pipelines.running.run import Job, Run, Stop, utc_now
from moldau.pipelines.running.state_directory import Holder, StateDirectory
from moldau.pipelines.running.view import View
from moldau.pipelines.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.pipelines.planning.compiling import Mode, Range

BATCH_DIRECTORY: Final = "batch"
"""Inside the state directory: a batch over the past may run beside the pipeline itself, as it has no checkpoints."""

OnPhase = Callable[[str], None]
"""Is told what takes so long."""

SESSION_DEFAULTS: Final = {
    "spark.sql.streaming.stopTimeout": "120s",
    "spark.sql.streaming.numRecentProgressUpdates": "64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How to run."""

    mode: Mode
    over: Range | None = None
    only: Collection[str] | None = None
    """Names of queries; None for all."""
    fresh: Collection[str] | None = field(default=())
    """Queries whose checkpoints are forgotten first; None for all."""
    debug: bool = False


def launch(
    pipeline: Pipeline,
    directory: StateDirectory,
    wanted: Wanted,
    session: Callable[[OnPhase], SparkSession],
    view: View,
    stop: Stop,
    phases: Callable[[str], AbstractContextManager[OnPhase]] = lambda first: nullcontext(lambda phase: None),
) -> RunStatus:
    """Runs the pipeline and returns how that ended. `phases` shows what takes long before there is a view."""
    queries = identity.of_pipeline(pipeline)
    names = _chosen(queries, wanted.only)
    _chosen(queries, wanted.fresh)  # a checkpoint that is to be forgotten must be one of these
    is_batch = wanted.mode.name == "BATCH"
    if is_batch:
        directory = StateDirectory(directory.path / BATCH_DIRECTORY)
    status = RunStatus(
        pipeline=pipeline.name, mode=wanted.mode.value, state="starting", pid=os.getpid(), host=socket.gethostname(),
        started=utc_now(), updated=utc_now(),
    )  # fmt: skip
    with directory.locked(Holder(status.pid, status.host, status.started)), _told_if_failed(directory, status):
        directory.forget_stop()
        if not is_batch:
            if wanted.fresh is None or wanted.fresh:
                identity.forget(directory, wanted.fresh)
            identity.check(directory, pipeline.name, names)
        with phases("looking at the topics") as show:

            def on_phase(phase: str) -> None:
                show(phase)
                directory.write_status(replace(status, updated=utc_now(), message=phase).to_json())

            made = topics.prepare(pipeline, names)
            spark = session(on_phase)
            on_phase(f"compiling {len(names)} {'query' if len(names) == 1 else 'queries'}")
            jobs = _jobs(pipeline, spark, directory, wanted, names)
        if not is_batch:
            identity.record(directory, pipeline.name, names, lambda: uuid.uuid4().hex)
        for topic in made:
            view.say(f"made topic {topic}")
        with _quiet(), Positions(pipeline, view.say) as positions:
            run = Run(jobs, directory, view, stop, status, random.random, wanted.debug)
            run.pulse = lambda: _tasks_done(spark)
            if not is_batch:
                run.tell_position = positions.tell
            return run.to_the_end()


def _chosen(queries: Mapping[str, QueryIdentity], only: Collection[str] | None) -> dict[str, QueryIdentity]:
    for name in only or ():
        if name not in queries:
            near = did_you_mean(name, queries) or f"; there are {', '.join(queries)}"
            raise PipelineError(f"there is no sink {name}{near}")
    return {name: query for name, query in queries.items() if only is None or name in only}


def _jobs(
    pipeline: Pipeline, spark: SparkSession, directory: StateDirectory, wanted: Wanted, names: Collection[str]
) -> list[Job]:
    from moldau.pipelines.planning.compiling import compile_pipeline
    from moldau.pipelines.running.jobs import activate, jobs

    activate(spark)
    return jobs(lambda: compile_pipeline(pipeline, spark, wanted.mode, wanted.over), directory, wanted.mode, names)


def _quiet() -> AbstractContextManager[None]:
    """Spark's Python side logs the SQL of a failed query as JSON; the run tells it in a line of its own."""
    from moldau.pipelines.planning.sql_errors import quiet

    return quiet()


def _tasks_done(spark: SparkSession) -> tuple[tuple[int, int], ...]:
    """The stages under way, and of each how many of its tasks are done: changes as long as Spark gets on."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return tuple(sorted((stage.stageId, stage.numCompletedTasks) for stage in stages if stage is not None))


@contextmanager
def _told_if_failed(directory: StateDirectory, status: RunStatus) -> Iterator[None]:
    """What keeps a run from coming to its first query is for `moldau pipeline status` too."""
    directory.write_status(status.to_json())
    try:
        yield
    except Exception as error:
        known = directory.read_status()
        if known is not None and known["state"] == "starting":
            failed = replace(status, state="failed", updated=utc_now(), message=str(error))
            directory.write_status(failed.to_json())
        raise
