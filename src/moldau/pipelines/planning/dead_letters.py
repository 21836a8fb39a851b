"""Handles bad records: writes them to a topic with the reason, drops and counts them, or fails the query.

A record in a dead-letter topic has its original key and value, and these headers (texts in UTF-8):

    moldau.error      why, in one line            moldau.source     the source of the pipeline
    moldau.topic      where it comes from         moldau.pipeline   the pipeline
    moldau.partition                              moldau.timestamp  of the record, ISO 8601
    moldau.offset
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from moldau.pipelines.planning.formats import Parsed
from moldau.pipelines.planning.record_schemas import VALUE
from moldau.pipelines.planning.record_values import headers_of
from moldau.pipelines.queries import DEAD_LETTERS, PARSED
from moldau.pipelines.spec import DROP, FAIL, TopicSource

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
"""The connector's columns that a dead letter needs."""
REASON: Final = "_moldau_reason"


def flow_name(source: TopicSource) -> str:
    return f"{source.name}{DEAD_LETTERS}"


def good_only(parsed: Parsed, source: TopicSource, pipeline: str) -> Parsed:
    """Return only the good records; the plan handles bad ones as the source's `dead_letter` says."""
    frame = parsed.frame
    if source.dead_letter == FAIL:
        bad = F.when(~parsed.is_good, F.col(VALUE))
        frame = frame.withColumn(REASON, parsed.reason(bad)).filter(_good_or_fail(parsed.is_good, source, pipeline))
    else:
        if source.dead_letter == DROP:
            frame = _observe(parsed, source)
        frame = frame.filter(parsed.is_good)
    return Parsed(frame, parsed.is_good, parsed.row, parsed.schema, parsed.reason)


def _observe(parsed: Parsed, source: TopicSource) -> DataFrame:
    """Return all records, and report their number and that of the bad ones in the progress of the query."""
    if not parsed.frame.isStreaming:
        return parsed.frame
    records, bad = F.count("*").alias("records"), F.count_if(~parsed.is_good).alias("bad")
    return parsed.frame.observe(f"{source.name}{PARSED}", records, bad)


def _good_or_fail(is_good: Column, source: TopicSource, pipeline: str) -> Column:
    message = F.concat(
        F.lit(f"source {source.name} of pipeline {pipeline}: bad record in topic "),
        F.col("topic"),
        F.lit(", partition "),
        F.col("partition").cast("string"),
        F.lit(", offset "),
        F.col("offset").cast("string"),
        F.lit(": "),
        F.col(REASON),
    )
    return F.when(is_good, F.lit(True)).otherwise(F.raise_error(message).cast("boolean"))


def dead_letters(parsed: Parsed, source: TopicSource, pipeline: str) -> DataFrame:
    """Return the bad records as rows for a topic."""
    bad = _observe(parsed, source).filter(~parsed.is_good).withColumn(REASON, parsed.reason(F.col(VALUE)))
    headers = headers_of(
        {
            "moldau.error": F.col(REASON),
            "moldau.topic": F.col("topic"),
            "moldau.partition": F.col("partition").cast("string"),
            "moldau.offset": F.col("offset").cast("string"),
            "moldau.timestamp": F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"),
            "moldau.source": F.lit(source.name),
            "moldau.pipeline": F.lit(pipeline),
        }
    )
    return bad.select("key", VALUE, headers.alias("headers"))
