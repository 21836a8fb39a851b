"""Whether a pipeline is right, found out without running it: each schema, query and expression before Spark's analyzer.

The pipeline is planned just as for a run, but over streams that have the connector's columns and never a record: no
broker is asked for anything. Static files and tables are looked at for their columns.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from moldau.pipelines.planning.compiling import try_compile
from moldau.pipelines.problems import Problem
from moldau.pipelines.spec import Pipeline, TopicSource
from moldau.spark.columns import TYPES


def check(pipeline: Pipeline, spark: SparkSession) -> list[Problem]:
    """All that Spark would refuse, in the order in which it was found; empty if the pipeline would start."""
    _, problems = try_compile(pipeline, spark, records=empty_stream)
    return problems


def empty_stream(session: SparkSession, source: TopicSource) -> DataFrame:
    """A stream of the connector's columns that is planned and never started."""
    columns = [F.lit(None).cast(of).alias(name) for name, of in TYPES.items()]
    return session.readStream.format("rate").load().select(*columns)
