"""Checks a pipeline without running it: Spark's analyzer checks every schema, query and expression.

The pipeline is planned as for a run, but over streams that have the connector's columns and no records, so that no
broker is needed. Static files and tables are opened to read their columns.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from moldau.pipelines.planning.compiling import try_compile
from moldau.pipelines.planning.stream_joins import join_problems
from moldau.pipelines.problems import Problem
from moldau.pipelines.queries import could_share
from moldau.pipelines.spec import Pipeline, TopicSource
from moldau.spark.columns import SOURCE_TYPES


def check(pipeline: Pipeline, spark: SparkSession) -> list[Problem]:
    """Return the problems of the pipeline in the order in which they were found; no error if it would start."""
    compiled, problems = try_compile(pipeline, spark, records=empty_stream)
    return [*problems, *join_problems(pipeline, compiled.views), *sharing_hints(pipeline)]


def sharing_hints(pipeline: Pipeline) -> list[Problem]:
    """Return a hint for each sink that could share the query of a sink above it."""
    hints = []
    for first, sink in could_share(pipeline.sinks):
        message = f"sink {sink.name}: it writes the rows of {sink.view}, as sink {first.name} does in another query"
        advice = f"`with: {first.name}` makes them one, which reads and parses once; only before the first run"
        hints.append(Problem(message, sink.place, advice, "hint"))
    return hints


def empty_stream(session: SparkSession, source: TopicSource) -> DataFrame:
    """Return a stream with the connector's columns, which is planned but never started."""
    columns = [F.lit(None).cast(data_type).alias(name) for name, data_type in SOURCE_TYPES.items()]
    return session.readStream.format("rate").load().select(*columns)
