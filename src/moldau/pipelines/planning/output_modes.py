"""Whether Spark can run a plan as a stream in an output mode, asked before the start and not found out by it."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from moldau.pipelines.planning.flows import OutputMode
from moldau.pipelines.planning.sql_errors import message_of


def refusal(frame: DataFrame, mode: OutputMode) -> str | None:
    """Spark's reason against it, or None. Spark's own checker, which otherwise speaks up when a query starts."""
    jvm: Any = frame.sparkSession._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    of_java = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), of_java)
    except PySparkException as error:
        return message_of(error)
    return None


def upsert_mode(frame: DataFrame) -> OutputMode:
    """Upserts want changes as they come (update); some plans, outer joins among them, only append."""
    return "append" if refusal(frame, "update") is not None and refusal(frame, "append") is None else "update"
