"""Watermarks and deduplication of the views of sources and steps.

Spark finds duplicates by the rows that it keeps, and forgets a row once the watermark has passed its event time. A step
may use the watermark of the source that it reads: the column keeps it when it is selected.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from moldau.pipelines.spec import Rows
from moldau.spark.lake.schemas import column_named

_WATERMARK: Final = "spark.watermarkDelayMs"
"""Spark's metadata of a column with a watermark."""


def with_watermark(frame: DataFrame, view: Rows) -> DataFrame:
    if view.watermark is None:
        return frame
    return frame.withWatermark(view.watermark.column, view.watermark.delay)


def why_unbounded(frame: DataFrame, deduplicate: tuple[str, ...]) -> tuple[str, str] | None:
    """Return why Spark could not forget rows of a stream that it deduplicates, and what helps; None if it can.

    Spark itself would keep all rows for ever, or fail in the first batch. The time of a window it reads only from the
    columns that it compares.
    """
    if not frame.isStreaming or not deduplicate:
        return None
    match event_times(frame):
        case []:
            return "none of its columns has a watermark", "select the column that has one, or give its source one"
        case [column]:
            if isinstance(column.dataType, StructType) and column_named(deduplicate, column.name) is None:
                return f"its watermark is that of the window {column.name}", f"add {column.name} to 'deduplicate'"
            return None
        case columns:
            names = " and ".join(column.name for column in columns)
            return f"{names} have a watermark each, and there can be only one", "select only one of them"


def without_duplicates(frame: DataFrame, deduplicate: tuple[str, ...]) -> DataFrame:
    if not deduplicate:
        return frame
    if frame.isStreaming and not any(isinstance(column.dataType, StructType) for column in event_times(frame)):
        return frame.dropDuplicatesWithinWatermark(list(deduplicate))
    return frame.dropDuplicates(list(deduplicate))


def event_times(frame: DataFrame) -> list[StructField]:
    """Return the columns with a watermark."""
    return [column for column in frame.schema.fields if _WATERMARK in column.metadata]
