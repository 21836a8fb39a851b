"""Checks a pipeline without running it: Spark's analyzer checks every schema, query and expression.

The pipeline is planned as for a run, but over streams that have the connector's columns and no records, so that no
broker is needed. Static files and tables are opened to read their columns. Tables of databases are compared with their
sinks if the database answers; nothing in it is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from moldau.databases import writing
from moldau.databases.destinations import Destination
from moldau.databases.errors import DatabaseError
from moldau.pipelines.planning.compiling import Compiled, Flow, try_compile
from moldau.pipelines.planning.flows import DatabaseTarget, SharedTarget
from moldau.pipelines.planning.sinks import arrow_schema
from moldau.pipelines.planning.stream_joins import join_problems
from moldau.pipelines.problems import Problem
from moldau.pipelines.queries import could_share
from moldau.pipelines.spec import Pipeline, TopicSource
from moldau.spark.columns import SOURCE_TYPES


def check(pipeline: Pipeline, spark: SparkSession) -> list[Problem]:
    """Return the problems of the pipeline in the order in which they were found; no error if it would start."""
    compiled, problems = try_compile(pipeline, spark, records=empty_stream)
    found = [*join_problems(pipeline, compiled.views), *sharing_hints(pipeline), *table_problems(pipeline, compiled)]
    return [*problems, *found]


def sharing_hints(pipeline: Pipeline) -> list[Problem]:
    """Return a hint for each sink that could share the query of a sink above it."""
    hints = []
    for first, sink in could_share(pipeline.sinks):
        message = f"sink {sink.name}: it writes the rows of {sink.view}, as sink {first.name} does in another query"
        advice = f"`with: {first.name}` makes them one, which reads and parses once; only before the first run"
        hints.append(Problem(message, sink.place, advice, "hint"))
    return hints


def table_problems(pipeline: Pipeline, compiled: Compiled) -> Iterator[Problem]:
    """Yield an error for each table of a database that does not fit its sink, and a hint if that was not checked."""
    places = {sink.name: sink.place for sink in pipeline.sinks}
    for flow in compiled.flows:
        for name, frame, destination in _destinations(flow):
            if destination.url.is_file and not Path(destination.url.path).exists():
                continue  # connecting would create it
            try:
                problem = writing.check(destination, arrow_schema(frame.schema, ""))
            except DatabaseError as error:
                message = f"sink {name}: its table was not checked: {error}"
                yield Problem(message, places[name], severity="hint")
                continue
            if problem is not None:
                yield Problem(f"sink {name}: {destination.shown}: {problem}", places[name])


def _destinations(flow: Flow) -> Iterator[tuple[str, DataFrame, Destination]]:
    """Yield the sinks of a query that write tables of databases, with their rows."""
    if isinstance(flow.target, DatabaseTarget):
        yield flow.name, flow.frame, flow.target.destination
    elif isinstance(flow.target, SharedTarget):
        for name, shape, target in flow.target.parts:
            if isinstance(target, DatabaseTarget):
                yield name, shape(flow.frame), target.destination


def empty_stream(session: SparkSession, source: TopicSource) -> DataFrame:
    """Return a stream with the connector's columns, which is planned but never started."""
    columns = [F.lit(None).cast(data_type).alias(name) for name, data_type in SOURCE_TYPES.items()]
    return session.readStream.format("rate").load().select(*columns)
