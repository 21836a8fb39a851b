"""One run of a pipeline from start to end: take the lock, check the preconditions, start Spark, then Run.

The checks come first, so that the user does not wait for Spark to start before a second run, a wrong checkpoint or a
missing topic is reported. The caller provides the session, the display and the stop request.
"""

from __future__ import annotations

import os
import random
import socket
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.pipelines.database_changes import DATABASES, database_sources
from moldau.pipelines.problems import PipelineError, did_you_mean
from moldau.pipelines.queries import DEAD_LETTERS, sinks_by_query, sinks_of
from moldau.pipelines.running import identity, topics
from moldau.pipelines.running.bad_records import BadRecords, Fate, fate_in_run, rules
from moldau.pipelines.running.broker_watch import BrokerWatch
from moldau.pipelines.running.display import Display
from moldau.pipelines.running.ends import Ends
from moldau.pipelines.running.fresh_start import (
    Decide,
    FreshStart,
    existing_output_warnings,
    plan_fresh_start,
    refuse_to_decide,
)
from moldau.pipelines.running.identity import QueryIdentity
from moldau.pipelines.running.progress import Gauge, QueryStatus, RunStatus
from moldau.pipelines.running.renamed_pipeline import refuse_if_renamed
from moldau.pipelines.running.run import Broker, Job, NoBroker, NoSlots, Run, Slots, utc_now
from moldau.pipelines.running.spark_checkpoint import SparkCheckpoint
from moldau.pipelines.running.state_directory import Holder, StateDirectory, StateRefused
from moldau.pipelines.running.stop_request import Stop
from moldau.pipelines.spec import FileSource, Pipeline, TopicSource
from moldau.spark.offsets import to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.pipelines.planning.compiling import Mode, Range

BATCH_DIRECTORY: Final = "batch"
"""Inside the state directory: a --batch run may run beside the pipeline itself, as it has no checkpoints."""

OnPhase = Callable[[str], None]
"""Called with a description of each phase that takes long."""

SESSION_DEFAULTS: Final = {
    "spark.sql.streaming.stopTimeout": "120s",
    "spark.sql.streaming.numRecentProgressUpdates": "64",
    # Else PySpark tells the JVM for every expression which line of Python made it: here, always one of ours.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of one run."""

    mode: Mode
    over: Range | None = None
    only: Collection[str] | None = None
    """Names of sinks, or of queries; None for all."""
    fresh: Collection[str] | None = field(default=())
    """Names of queries whose checkpoints are removed first; None for all."""
    decide: Decide = refuse_to_decide
    """Decides what happens to topics and tables that would then hold everything twice, or rows that are out of date."""
    fate: Fate = fate_in_run
    """Returns where the bad records of a source are, for messages."""
    debug: bool = False


def launch(
    pipeline: Pipeline,
    directory: StateDirectory,
    options: RunOptions,
    session: Callable[[OnPhase], SparkSession],
    display: Display,
    stop: Stop,
    phases: Callable[[str], AbstractContextManager[OnPhase]] = lambda first: nullcontext(lambda phase: None),
) -> RunStatus:
    """Run the pipeline and return its final status. `phases` shows what takes long before the display is shown."""
    is_batch = options.mode.name == "BATCH"
    queries = identity.of_pipeline(pipeline, each_sink_alone=is_batch)
    chosen = choose_queries(queries, _each_sink_alone(pipeline, options.only) if is_batch else options.only)
    fresh = None if options.fresh is None else queries_to_forget(queries, options.fresh, directory)
    if is_batch:
        directory = batch_directory(directory)
    status = RunStatus(
        pipeline=pipeline.name, mode=options.mode.value, state="starting", pid=os.getpid(), host=socket.gethostname(),
        started=utc_now(), updated=utc_now(), file=str(pipeline.file.absolute()), bootstrap=pipeline.bootstrap,
    )  # fmt: skip
    with (
        directory.locked(Holder(status.pid, status.host, status.started)),
        _record_failed_start(directory, status, pipeline.masked) as run_before,
    ):
        directory.forget_stop()
        fresh_start = FreshStart()
        if not is_batch:
            left_out = [name for name in queries if name not in chosen]
            fresh_start = _plan_fresh_start(pipeline, directory, chosen, left_out, fresh, options.decide)
        with phases("looking at the topics") as show:

            def on_phase(phase: str) -> None:
                show(phase)
                directory.write_status(replace(status, updated=utc_now(), message=phase).to_json())

            created = topics.prepare(pipeline, {sink for name in chosen for sink in sinks_of(name)})
            of_topics = topics.warnings(pipeline)
            spark = session(on_phase)
            on_phase(f"compiling {len(chosen)} {'query' if len(chosen) == 1 else 'queries'}")
            jobs = _jobs(pipeline, spark, directory, options, chosen)
        if stop.is_requested(directory):
            if FreshStart.read(directory) is not None:
                display.say("stopped before the first query: the --fresh of an earlier run is still unfinished")
            elif fresh_start.queries != ():
                display.say("stopped before the first query: --fresh has cleared nothing and removed no checkpoint")
        elif not is_batch:
            # Last, when no check can refuse the run any more: a query without its checkpoint writes everything again.
            changed = identity.resumes_with_changed_steps(directory, chosen, fresh_start.queries)
            for line in [*changed, *fresh_start.perform(directory, pipeline)]:
                display.say(line)
            directory.finish_removals()
            for line in _drop_unused_slots(pipeline, directory):
                display.say(line)
            identity.record(directory, pipeline.name, chosen, lambda: uuid.uuid4().hex)
        bad_records = BadRecords(rules(pipeline, options.fate), set())
        warnings = [*of_topics, *_warnings(pipeline, queries, chosen, is_batch)]
        for line in [*(f"made topic {topic}" for topic in created), *warnings, *bad_records.of_killed_run(run_before)]:
            display.say(line)
        run = Run(jobs, directory, display, stop, status, random.random, options.debug)
        run.pulse = lambda: _tasks_done(spark)
        run.masked = pipeline.masked
        run.bad_records = bad_records
        run.ends_of = lambda name: _ends(pipeline, name, chosen[name])
        if not is_batch:
            run.left_out = [waiting_query(directory, name) for name in queries if name not in chosen]
        slots, broker = _slots(pipeline, directory, is_batch), _broker(pipeline, display, is_batch)
        with _quiet(), slots as run.slots, broker as run.broker:
            return run.to_the_end()


def _plan_fresh_start(
    pipeline: Pipeline,
    directory: StateDirectory,
    chosen: Mapping[str, QueryIdentity],
    left_out: Collection[str],
    fresh: Collection[str] | None,
    decide: Decide,
) -> FreshStart:
    """Plan the fresh start of the `fresh` queries, and of those that a killed run did not finish. Check the others."""
    if fresh is not None:
        unfinished = FreshStart.read(directory)
        if not fresh:  # no query is to start from scratch
            fresh_start = unfinished or FreshStart()
            _check_checkpoints(pipeline, directory, chosen, fresh_start.queries, left_out)
            return fresh_start
        if unfinished is not None:
            fresh = None if unfinished.queries is None else list(dict.fromkeys([*fresh, *unfinished.queries]))
    _check_checkpoints(pipeline, directory, chosen, fresh, left_out)
    return plan_fresh_start(pipeline, directory, fresh, decide)


def _check_checkpoints(
    pipeline: Pipeline,
    directory: StateDirectory,
    chosen: Mapping[str, QueryIdentity],
    forgotten: Collection[str] | None,
    left_out: Collection[str],
) -> None:
    shown_file = _path_for_commands(pipeline.file)
    identity.check(directory, pipeline.name, chosen, forgotten, left_out, shown_file)
    refuse_if_renamed(directory, pipeline, chosen, forgotten, shown_file)


def _path_for_commands(file: Path) -> str:
    """Return the path as the user would write it here: relative if the file is below the working directory."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def choose_queries(queries: Mapping[str, QueryIdentity], only: Collection[str] | None) -> dict[str, QueryIdentity]:
    """Return the queries that `only` selects by the names of sinks or queries; PipelineError if a name is wrong."""
    if only is None:
        return dict(queries)
    sinks = [sink for query in queries for sink in sinks_of(query)]
    for name in only:
        if name not in sinks and name not in queries:
            near = did_you_mean(name, sinks) or f"; there are {', '.join(sinks)}"
            raise PipelineError(f"there is no sink {name}{near}")
    selected = {}
    for name, query in queries.items():
        missing_sinks = [sink for sink in sinks_of(name) if sink not in only]
        if name not in only and 0 < len(missing_sinks) < len(sinks_of(name)):
            raise PipelineError(f"sink {missing_sinks[0]} is written by the same query ({name}): name it too")
        if name in only or not missing_sinks:
            selected[name] = query
    return selected


def _each_sink_alone(pipeline: Pipeline, only: Collection[str] | None) -> list[str] | None:
    """Return the names for a batch, in which no sinks share a query: instead of a shared query, those of its sinks."""
    shared = sinks_by_query(pipeline.sinks)
    return None if only is None else [sink for name in only for sink in (sinks_of(name) if name in shared else [name])]


def queries_to_forget(
    queries: Mapping[str, QueryIdentity], named: Collection[str], directory: StateDirectory
) -> list[str]:
    """Return the named queries; they may also be queries that only an earlier version of the pipeline had."""
    before = [name for name in named if name not in queries and name in directory.queries()]
    return [*before, *choose_queries(queries, [name for name in named if name not in before])]


def _jobs(
    pipeline: Pipeline, spark: SparkSession, directory: StateDirectory, options: RunOptions, chosen: Collection[str]
) -> list[Job]:
    from moldau.pipelines.planning.compiling import Compiled, compile_pipeline
    from moldau.pipelines.running.jobs import activate, jobs

    activate(spark)

    def compile_flows(reload_steps: bool) -> Compiled:
        return compile_pipeline(
            pipeline, spark, options.mode, options.over, reload_steps=reload_steps, state=directory.path.absolute()
        )

    return jobs(compile_flows, directory, options.mode, chosen)


def _warnings(
    pipeline: Pipeline, queries: Collection[str], chosen: Mapping[str, QueryIdentity], is_batch: bool
) -> Iterator[str]:
    """Yield warnings about this run that its final status does not contain."""
    if is_batch:
        yield from existing_output_warnings(pipeline, {sink for name in chosen for sink in sinks_of(name)})
    sources_read = {source for query in chosen.values() for source in query.sources}
    for name in queries:
        source = name.removesuffix(DEAD_LETTERS)
        if name.endswith(DEAD_LETTERS) and name not in chosen and source in sources_read:
            yield f"bad records of source {source} are left out and not counted: {name} is not part of this run"


def waiting_query(directory: StateDirectory, query: str) -> Gauge:
    """Return the gauge of a query that is not running, with the position from its checkpoint."""
    position = SparkCheckpoint(directory.checkpoint(query)).position()
    return Gauge(QueryStatus(name=query, state="not running", position=to_json(position)), dict(position))


def _ends(pipeline: Pipeline, name: str, query: QueryIdentity) -> Ends:
    streams = {stream: pipeline.sources[stream] for stream in query.sources}
    return Ends(
        {
            stream: source.reads if isinstance(source, TopicSource) else lambda topic: False
            for stream, source in streams.items()
        },
        {stream: source.path for stream, source in streams.items() if isinstance(source, FileSource)},
        sinks_of(name),
    )


def _broker(pipeline: Pipeline, display: Display, is_batch: bool) -> AbstractContextManager[Broker]:
    return nullcontext(NoBroker()) if is_batch else BrokerWatch(pipeline, display.say)


def _slots(pipeline: Pipeline, directory: StateDirectory, is_batch: bool) -> AbstractContextManager[Slots]:
    if is_batch or not any(database_sources(pipeline)):
        return nullcontext(NoSlots())
    from moldau.pipelines.running.database_watch import DatabaseWatch

    return DatabaseWatch(pipeline, directory.path)


def _drop_unused_slots(pipeline: Pipeline, directory: StateDirectory) -> list[str]:
    if not (directory.path / DATABASES).is_dir():
        return []
    from moldau.pipelines.running.database_watch import drop_unused_slots

    return drop_unused_slots(pipeline, directory.path)


def _quiet() -> AbstractContextManager[None]:
    """Silence PySpark's log, which prints the SQL of a failed query as JSON; the run reports it in one line."""
    from moldau.pipelines.planning.sql_errors import quiet

    return quiet()


def _tasks_done(spark: SparkSession) -> tuple[tuple[int, int], ...]:
    """Return the active stages with their numbers of completed tasks: this changes as long as Spark makes progress."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return tuple(sorted((stage.stageId, stage.numCompletedTasks) for stage in stages if stage is not None))


@contextmanager
def _record_failed_start(
    directory: StateDirectory, status: RunStatus, masked: Callable[[str], str] = str
) -> Iterator[RunStatus | None]:
    """Yield the status of the last run. If this one fails before its first query, restore that status, with a note."""
    before = last_run(directory)
    directory.write_status(status.to_json())
    try:
        yield before
    except BaseException as error:  # also Ctrl-C before Spark is up: from then on it is a request to stop
        current = directory.read_status()
        if current is not None and current["state"] == "starting":
            directory.write_status(_after_failed_start(before, status, masked(_reason(error))).to_json())
        raise


def _reason(error: BaseException) -> str:
    return "interrupted by Ctrl-C" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__


def _after_failed_start(before: RunStatus | None, start: RunStatus, reason: str) -> RunStatus:
    if before is None or not before.queries:
        return replace(start, state="failed", updated=utc_now(), message=reason)
    return replace(before, note=f"a later start, at {start.started}, failed: {reason}")


def batch_directory(directory: StateDirectory) -> StateDirectory:
    """Return the state directory of --batch runs of the same pipeline."""
    return StateDirectory(directory.path / BATCH_DIRECTORY, is_of_batch=True)


def last_run(directory: StateDirectory) -> RunStatus | None:
    """Return the status that the last run wrote; None if there is none that this version can read."""
    try:
        content = directory.read_status()
        return None if content is None else RunStatus.from_json(content)
    except (StateRefused, ValueError):  # of another version, or damaged: the next status replaces it
        return None
