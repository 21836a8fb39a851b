"""Checks before the start of a query whether Spark can run its plan in an output mode."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from moldau.pipelines.planning.flows import OutputMode
from moldau.pipelines.planning.sql_errors import message_of


def why_unsupported(frame: DataFrame, mode: OutputMode) -> str | None:
    """Return why Spark cannot run the plan in this mode, or None if Spark can.

    This calls the checker that Spark calls when a query starts.
    """
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
    """Return the mode for upserts: update if Spark supports it, because it emits changed rows at once.

    Some plans (outer joins …) only support append. If Spark supports neither, the result is update, and the caller
    reports why update is not supported.
    """
    if why_unsupported(frame, "update") is None:
        return "update"
    if why_unsupported(frame, "append") is None:
        return "append"
    return "update"
