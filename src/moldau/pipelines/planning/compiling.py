"""Compiles a pipeline's spec for Spark: one view per source and step, one Flow per sink and per dead-letter topic.

Compiling only plans: it contacts no broker and runs no query (but may read the schema of a static file). It finds
everything that is wrong in one run. The runner starts the flows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from py4j.java_gateway import is_instance_of
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from moldau.databases.changes.rows import CHANGE_COLUMNS
from moldau.pipelines.planning import database_changes, event_time, formats, python_steps, sources
from moldau.pipelines.planning.backend_sources import backend_rows
from moldau.pipelines.planning.csv_files import MissingColumn
from moldau.pipelines.planning.dead_letters import COLUMNS, dead_letters, flow_name, good_only
from moldau.pipelines.planning.flows import Flow, TopicTarget, merge, start, write_batch
from moldau.pipelines.planning.output_modes import why_unsupported
from moldau.pipelines.planning.problem_collection import (
    InvalidSetting,
    NeededViewFailed,
    ProblemCollection,
    schema_file_error,
)
from moldau.pipelines.planning.record_schemas import VALUE, ddl_schema, record_schema
from moldau.pipelines.planning.sinks import SinkCompiler, check_column
from moldau.pipelines.planning.sources import METADATA, Mode, Range
from moldau.pipelines.planning.sql_errors import sql_functions
from moldau.pipelines.problems import InvalidPipeline, Problem
from moldau.pipelines.queries import sinks_by_query
from moldau.pipelines.spec import (
    FAIL,
    REAL_TIME,
    BackendSource,
    DatabaseSource,
    FileSource,
    Pipeline,
    PythonStep,
    Rows,
    Source,
    SqlStep,
    Step,
    TableSource,
    TopicSink,
    TopicSource,
)

__all__ = ["Compiled", "Flow", "Mode", "Range", "Records", "compile_pipeline", "start", "try_compile", "write_batch"]

SourceT = TypeVar("SourceT", TopicSource, FileSource, BackendSource)
DEAD_LETTER_TRIGGER = "5 seconds"
"""How often bad records are looked for, unless the pipeline has a trigger: not with each batch, because the records are
read and parsed a second time, beside the queries that should be quick."""
ROWS_OF_SAMPLE = 1000
"""How many rows of a database are read for a preview."""
_COMMANDS = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
)


class Records(Protocol):
    """Supplies the records of a topic instead of the connector: from files in a test, or an empty stream."""

    def __call__(self, session: SparkSession, source: TopicSource) -> DataFrame:
        """Return the connector's columns: key, value, topic, partition, offset, timestamp, and headers if needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A pipeline planned in a Spark session."""

    session: SparkSession
    """Each pipeline has its own, so that temporary views of two pipelines never collide."""
    views: Mapping[str, DataFrame]
    flows: tuple[Flow, ...]


def compile_pipeline(
    pipeline: Pipeline,
    spark: SparkSession,
    mode: Mode = Mode.CONTINUOUS,
    over: Range | None = None,
    records: Records | None = None,
    *,
    reload_steps: bool = True,
    state: Path | None = None,
) -> Compiled:
    """Plan the whole pipeline. Raises InvalidPipeline with all that Spark does not accept, each with its place.
    `reload_steps` loads Python steps from their files again, even if this process has loaded them before.
    `state` is the state directory, where streams of database changes keep their files: only a run needs it."""
    compiled, problems = try_compile(pipeline, spark, mode, over, records, reload_steps=reload_steps, state=state)
    if problems:
        raise InvalidPipeline(problems)
    return compiled


def try_compile(
    pipeline: Pipeline,
    spark: SparkSession,
    mode: Mode = Mode.CONTINUOUS,
    over: Range | None = None,
    records: Records | None = None,
    *,
    reload_steps: bool = True,
    state: Path | None = None,
) -> tuple[Compiled, list[Problem]]:
    """Return what could be planned, and the problems of the rest."""
    compilation = _Compilation(pipeline, _session(pipeline, spark), mode, over or Range(), records, reload_steps)
    compilation.state = state
    for source in pipeline.sources.values():
        compilation.add_source(source)
    for index, step in enumerate(pipeline.steps):
        compilation.add_step(step, f"steps.{index}")
    for index in range(len(pipeline.sinks)):
        compilation.add_sink(index)
    flows = compilation.flows if mode is Mode.BATCH else compilation.flows_of_queries()
    compiled = Compiled(session=compilation.session, views=compilation.views, flows=tuple(flows))
    return compiled, compilation.problems.all()


def _session(pipeline: Pipeline, spark: SparkSession) -> SparkSession:
    # A clone instead of a new session, because a new one lacks the data sources registered with the first.
    java: Any = spark._jsparkSession
    session = SparkSession(spark.sparkContext, java.cloneSession())
    for key, value in pipeline.spark.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


class _Compilation:
    """Collects views and flows in the order of the file."""

    def __init__(
        self,
        pipeline: Pipeline,
        session: SparkSession,
        mode: Mode,
        over: Range,
        records: Records | None,
        reload_steps: bool,
    ) -> None:
        self._pipeline, self.session, self._mode, self._over = pipeline, session, mode, over
        self._records, self._reload_steps = records, reload_steps
        self.problems = ProblemCollection(pipeline, lambda: sql_functions(session))
        self.state: Path | None = None
        self.views: dict[str, DataFrame] = {}
        self.flows: list[Flow] = []

    # --- sources ----------------------------------------------------------------------------------------------------

    def add_source(self, source: Source) -> None:
        path = f"sources.{source.name}"
        with self.problems.recording(path, f"source {source.name}", view=source.name):
            if isinstance(source, TopicSource):
                self._add_topic(source, path)
            elif isinstance(source, DatabaseSource):
                self._add_view(source, sources.counted(self._database_changes(source), source.name), path)
            else:
                self._add_view(source, self._static_or_watched(source, path), path)

    def _static_or_watched(self, source: FileSource | TableSource | BackendSource, path: str) -> DataFrame:
        if isinstance(source, BackendSource):
            schema = self._read_schema(source, path, ddl_schema)
            try:
                rows = backend_rows(self.session, self._pipeline, source, schema, self._mode, reload=self._reload_steps)
                return sources.counted(rows, source.name)
            except python_steps.PythonStepError as error:
                raise InvalidSetting(f"{path}.backend", str(error)) from error
        if isinstance(source, FileSource) and (source.schema is not None or source.schema_file is not None):
            self._read_schema(source, path, ddl_schema)
        try:
            return sources.static_or_watched(self.session, source, self._mode)
        except MissingColumn as error:
            raise InvalidSetting(f"{path}.schema", str(error), error.hint, column=error.column) from error

    def _database_changes(self, source: DatabaseSource) -> DataFrame:
        if source.staged is not None:
            return sources.static_or_watched(self.session, source.staged, self._mode)
        is_sample = self._mode is Mode.BATCH and self._records is not None
        limit = ROWS_OF_SAMPLE if is_sample else None
        is_stream = self._mode is not Mode.BATCH
        return database_changes.changes_view(self.session, self._pipeline, source, self.state, is_stream, limit)

    def _add_topic(self, source: TopicSource, path: str) -> None:
        schema = self._schema(source, path)
        metadata = sources.needed_metadata(self._pipeline, source)
        columns = [VALUE, *(METADATA[name] for name in metadata)]
        if source.dead_letter == FAIL:
            columns += ["topic", "partition", "offset"]
        good = good_only(self._parse(source, schema, columns), source, self._pipeline.name)
        self._add_view(source, sources.topic_view(good, source, metadata), path)
        if source.dead_letter_topic is not None and source.format != "raw":
            self._add_dead_letters(source, schema, source.dead_letter_topic)

    def _schema(self, source: TopicSource, path: str) -> StructType:
        schema = self._read_schema(source, path, record_schema)
        reserved = {*METADATA, *(CHANGE_COLUMNS if source.format == "debezium" else ())}
        if duplicates := sorted({name for name in schema.names if schema.names.count(name) > 1 or name in reserved}):
            raise InvalidSetting(f"{path}.schema", f"column {duplicates[0]} is there twice", column=duplicates[0])
        return schema

    def _read_schema(self, source: SourceT, path: str, read: Callable[[SourceT], StructType]) -> StructType:
        """Return the schema that `read` returns; errors have the place of the word in the pipeline's file."""
        schema = StructType()
        if source.schema is None:
            try:
                schema = read(source)
            except ParseException as error:
                assert source.schema_file is not None, "DDL is in the pipeline's file or in a schema file"
                raise schema_file_error(source.schema_file, error) from error
        else:
            with self.problems.recording(f"{path}.schema", f"source {source.name}", source.schema, view=source.name):
                schema = read(source)
        if self.problems.has_failed(source.name):
            raise NeededViewFailed(source.name)
        return schema

    def _parse(self, source: TopicSource, schema: StructType, columns: list[str]) -> formats.Parsed:
        distinct = tuple(dict.fromkeys(columns))
        if self._records is not None:
            records = self._records(self.session, source).select(*distinct)
        else:
            records = sources.topic_records(self.session, self._pipeline, source, distinct, self._mode, self._over)
        return formats.parse(records, source, schema, sources.format_options(source.options))

    def _add_dead_letters(self, source: TopicSource, schema: StructType, topic: str) -> None:
        parsed = self._parse(source, schema, list(COLUMNS))
        options = sources.sink_options(self._pipeline, flow_name(source), {}) | {"topic": topic}
        self.flows.append(
            Flow(
                name=flow_name(source),
                kind="dead letters",
                place=source.place,
                view=source.name,
                description=f"topic {topic}",
                frame=dead_letters(parsed, source, self._pipeline.name),
                mode="append",
                trigger=DEAD_LETTER_TRIGGER if self._is_real_time else self._pipeline.trigger or DEAD_LETTER_TRIGGER,
                target=TopicTarget(self._pipeline.connector, options),
            )
        )

    # --- steps ------------------------------------------------------------------------------------------------------

    def add_step(self, step: Step, path: str) -> None:
        subject = f"step {step.name}"
        if isinstance(step, SqlStep):
            with self.problems.recording(f"{path}.sql", subject, step.sql, view=step.name):
                self._check_is_query(step.sql, f"{path}.sql")
                self._add_view(step, self.session.sql(step.sql), path)
        else:
            with self.problems.recording(f"{path}.python", subject, view=step.name):
                inputs = [self._view(name) for name in step.inputs]
                self._add_view(step, self._call_step(step, inputs, path), path)

    def _call_step(self, step: PythonStep, inputs: Sequence[DataFrame], path: str) -> DataFrame:
        try:
            return python_steps.call_step(step, self._pipeline.file.parent, inputs, reload=self._reload_steps)
        except python_steps.UnknownArgument as error:
            raise InvalidSetting(f"{path}.args.{error.argument}", str(error), at_key=True) from error

    def _check_is_query(self, sql: str, path: str) -> None:
        """Raise InvalidSetting for a command (DROP, SET, INSERT), because Spark executes a command when it plans it."""
        java: Any = self.session._jsparkSession
        plan = java.sessionState().sqlParser().parsePlan(sql)
        gateway = self.session.sparkContext._gateway
        if any(is_instance_of(gateway, plan, name) for name in _COMMANDS):
            raise InvalidSetting(path, "a step is a query (SELECT …), not a command")

    def _view(self, name: str) -> DataFrame:
        """Return the view of this name, ignoring case as SQL does. Raises NeededViewFailed if there is no such view."""
        for view, frame in self.views.items():
            if view.casefold() == name.casefold() and not self.problems.has_failed(view):
                return frame
        raise NeededViewFailed(name)

    def _add_view(self, origin: Source | Step, frame: DataFrame, path: str) -> None:
        if not isinstance(origin, TableSource):
            self._check_columns(frame, origin, path)
            frame = self._with_event_time(frame, origin, path)
        frame.createOrReplaceTempView(origin.name)
        self.views[origin.name] = frame

    def _check_columns(self, frame: DataFrame, origin: Rows, path: str) -> None:
        """Add a problem for each column of `watermark` and `deduplicate` that the frame lacks."""
        named = [(f"{path}.watermark.column", origin.watermark.column)] if origin.watermark else []
        named += [(f"{path}.deduplicate.{index}", name) for index, name in enumerate(origin.deduplicate)]
        for setting, name in named:
            with self.problems.recording(setting, _subject(origin, path), view=origin.name):
                check_column(frame, name, setting)
        if self.problems.has_failed(origin.name):
            raise NeededViewFailed(origin.name)

    def _with_event_time(self, frame: DataFrame, origin: Rows, path: str) -> DataFrame:
        with self.problems.recording(f"{path}.watermark.column", _subject(origin, path), view=origin.name):
            frame = event_time.with_watermark(frame, origin)
            if (unbounded := event_time.why_unbounded(frame, origin.deduplicate)) is not None:
                reason, hint = unbounded
                message = f"'deduplicate' cannot know when to forget a row: {reason}"
                raise InvalidSetting(f"{path}.deduplicate", message, hint, at_key=True)
            return event_time.without_duplicates(frame, origin.deduplicate)
        raise NeededViewFailed(origin.name)

    # --- sinks ------------------------------------------------------------------------------------------------------

    def add_sink(self, index: int) -> None:
        sink, path = self._pipeline.sinks[index], f"sinks.{index}"
        try:
            frame = self._view(sink.view)
        except NeededViewFailed as error:
            self.problems.skip_dependent(f"sink {sink.name}", error.view)
            return
        if not frame.isStreaming and self._mode is not Mode.BATCH:
            self.problems.add(
                f"{path}.from",
                f"sink {sink.name}: nothing in {sink.view} streams, so there is nothing to wait for",
                "read a topic or a file with `watch: true` in it, or run the pipeline as a batch",
            )
            return
        if self._is_real_time and (not isinstance(sink, TopicSink) or sink.shares_query_of is not None):
            message = f"sink {sink.name}: real-time mode writes each topic with a query of its own, and nothing else"
            self.problems.add(path, message, "leave `trigger: real-time` out")
            return
        flow = SinkCompiler(self._pipeline, path, sink, frame, self.problems, self._reload_steps).flow()
        if flow is None:
            return
        if flow.frame.isStreaming and (reason := why_unsupported(flow.frame, flow.mode)) is not None:
            self.problems.add(f"{path}.mode", f"sink {sink.name}: {reason}", _mode_hint(flow))
            return
        self.flows.append(flow)

    @property
    def _is_real_time(self) -> bool:
        return (self._pipeline.trigger or "").startswith(REAL_TIME)

    def flows_of_queries(self) -> list[Flow]:
        """Return the flows, with the flows of sinks that share a query merged into one.

        If a sink of a shared query is invalid, the flows of its other sinks stay apart; such a pipeline does not run.
        """
        by_name = {flow.name: flow for flow in self.flows}
        for name, sinks in sinks_by_query(self._pipeline.sinks).items():
            flows = [by_name[sink.name] for sink in sinks if sink.name in by_name]
            if len(flows) == len(sinks) > 1:
                by_name[flows[0].name] = merge(name, self._view(sinks[0].view), flows)
                for flow in flows[1:]:
                    del by_name[flow.name]
        return list(by_name.values())


def _subject(origin: Source | Step, path: str) -> str:
    return f"{'step' if path.startswith('steps.') else 'source'} {origin.name}"


def _mode_hint(flow: Flow) -> str | None:
    if flow.mode == "append":
        return "give the event time a watermark, or write with `mode: update` or `mode: complete`"
    return None
