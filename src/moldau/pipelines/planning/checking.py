"""Checks a pipeline without running it: Spark's analyzer checks every schema, query and expression.

The pipeline is planned as for a run, but over streams that have the connector's columns and no records, so that no
broker is needed. Static files and tables are opened to read their columns.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from moldau.pipelines.planning.compiling import try_compile
from moldau.pipelines.problems import Problem
from moldau.pipelines.spec import Pipeline, TopicSource
from moldau.spark.columns import SOURCE_TYPES


def check(pipeline: Pipeline, spark: SparkSession) -> list[Problem]:
    """Return the problems of the pipeline in the order in which they were found; none if the pipeline would start."""
    _, problems = try_compile(pipeline, spark, records=empty_stream)
    return problems


def empty_stream(session: SparkSession, source: TopicSource) -> DataFrame:
    """Return a stream with the connector's columns, which is planned but never started."""
    columns = [F.lit(None).cast(data_type).alias(name) for name, data_type in SOURCE_TYPES.items()]
    return session.readStream.format("rate").load().select(*columns)
