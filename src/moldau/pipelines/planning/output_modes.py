"""Checks before the start of a query whether Spark can run its plan in an output mode."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from moldau.pipelines.planning.flows import OutputMode
from moldau.pipelines.planning.sql_errors import message_of


def refusal(frame: DataFrame, mode: OutputMode) -> str | None:
    """Return Spark's reason to refuse the mode, or None. This calls the checker that Spark calls at the start."""
    jvm: Any = frame.sparkSession._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    java_mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), java_mode)
    except PySparkException as error:
        return message_of(error)
    return None


def upsert_mode(frame: DataFrame) -> OutputMode:
    """Return the mode for upserts: update, which emits changes at once. Some plans (outer joins …) only append."""
    return "append" if refusal(frame, "update") is not None and refusal(frame, "append") is None else "update"
