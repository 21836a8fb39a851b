"""Makes views of sources: topics through the connector, files and lake tables through Spark, as streams or batches.

A topic's view has the columns of its schema, and those metadata columns that the pipeline uses: _key, _topic,
_partition, _offset, _timestamp, _headers. No broker is contacted before a query starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from moldau.pipelines.planning import csv_files
from moldau.pipelines.planning.formats import Parsed
from moldau.pipelines.planning.record_schemas import read_ddl
from moldau.pipelines.queries import READ
from moldau.pipelines.spec import (
    FileSource,
    Offsets,
    Pipeline,
    PythonStep,
    SqlStep,
    Start,
    TableSource,
    TopicSink,
    TopicSource,
)
from moldau.spark.columns import SOURCE_TYPES
from moldau.spark.options import KAFKA, SINK_OPTIONS, SOURCE_OPTIONS

METADATA: Final = {
    "_key": "key",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_headers": "headers",
}
"""Metadata columns of a topic's view, and the connector's column for each."""
ISOLATION: Final = KAFKA + "isolation.level"
"""Read committed unless a pipeline overrides it: exactly-once output must not contain aborted records."""
_STAR: Final = re.compile(r"(?<!count\()\*", re.IGNORECASE)
"""A star that may stand for all columns. A multiplication also matches: it only costs unneeded columns."""


class Mode(Enum):
    """How a pipeline is run. The first two make the same plans and differ only in the trigger."""

    CONTINUOUS = "continuous"
    UNTIL_CAUGHT_UP = "until caught up"
    BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What a batch run reads of the topics: [start, end). If `start` is None, the source's `start` is used; if `end` is
    None, the current end of the topics."""

    start: Start | None = None
    end: Start | None = None


def connector_options(pipeline: Pipeline, options: Mapping[str, str]) -> dict[str, str]:
    """Return the connector's options among those of a source or sink, with the pipeline's client properties."""
    names = {name.lower() for name in SOURCE_OPTIONS | SINK_OPTIONS}
    connector = {name: value for name, value in options.items() if name.lower() in names or _is_kafka(name)}
    properties = {KAFKA + name: value for name, value in pipeline.kafka.items()}
    servers = {} if pipeline.bootstrap is None else {KAFKA + "bootstrap.servers": pipeline.bootstrap}
    return servers | properties | connector


def sink_options(pipeline: Pipeline, query: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the connector's options for a sink. Transactional ids and the groups with batch ids have the prefix
    <pipeline>.<query>."""
    if pipeline.connector != "moldau":
        return connector_options(pipeline, options)
    return {"transactionalIdPrefix": f"{pipeline.name}.{query}"} | connector_options(pipeline, options)


def format_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that are not the connector's, for Spark's json and csv."""
    names = {name.lower() for name in SOURCE_OPTIONS | SINK_OPTIONS}
    return {name: value for name, value in options.items() if name.lower() not in names and not _is_kafka(name)}


def _is_kafka(name: str) -> bool:
    return name.lower().startswith(KAFKA)


# --- topics ---------------------------------------------------------------------------------------------------------


def topic_records(
    session: SparkSession, pipeline: Pipeline, source: TopicSource, columns: tuple[str, ...], mode: Mode, over: Range
) -> DataFrame:
    """Return the records of a topic with these columns of the connector.

    Moldau's connector gets them as its schema, so that it decodes no other columns; Spark's has a fixed schema.
    """
    options = topic_options(pipeline, source, mode, over)
    if mode is Mode.BATCH:
        batch = session.read.format(pipeline.connector).options(**options)
        return (batch.schema(_projection(columns)) if pipeline.connector == "moldau" else batch).load().select(*columns)
    stream = session.readStream.format(pipeline.connector).options(**options)
    return (stream.schema(_projection(columns)) if pipeline.connector == "moldau" else stream).load().select(*columns)


def _projection(columns: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, SOURCE_TYPES[name]) for name in columns])


def topic_options(pipeline: Pipeline, source: TopicSource, mode: Mode, over: Range) -> dict[str, str]:
    options = {ISOLATION: "read_committed"} | connector_options(pipeline, source.options)
    if "assign" not in {name.lower() for name in options}:
        options |= {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
    if source.headers:
        options["includeHeaders"] = "true"
    if mode is Mode.BATCH:
        begin = source.start if over.start is None else over.start
        # A batch from the latest offset on would be empty.
        options |= _bound("starting", "earliest" if begin == "latest" else begin)
        return options | (_bound("ending", over.end) if over.end is not None else {})
    if source.max_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_per_trigger)
    return options | _bound("starting", source.start)


def _bound(prefix: str, bound: Start) -> dict[str, str]:
    """Return the connector's options for a start or end. A time after the last record means the end, not an error."""
    if isinstance(bound, str):
        return {f"{prefix}Offsets": bound}
    if isinstance(bound, datetime):
        late = {"startingOffsetsByTimestampStrategy": "latest"} if prefix == "starting" else {}
        return {f"{prefix}Timestamp": str(round(bound.timestamp() * 1000))} | late
    return {f"{prefix}Offsets": _offsets_json(bound)}


def _offsets_json(offsets: Offsets) -> str:
    return json.dumps(
        {topic: {str(index): offset for index, offset in each.items()} for topic, each in offsets.items()}
    )


def needed_metadata(pipeline: Pipeline, source: TopicSource) -> tuple[str, ...]:
    """Return the columns of METADATA that the pipeline may use. Others are left out, because their transfer takes time.

    Any word in the pipeline's SQL counts as a use. A star, a Python step or a sink that writes whole rows needs all
    columns.
    """
    offered = [name for name in METADATA if name != "_headers" or source.headers]
    if source.format == "raw" or _needs_whole_rows(pipeline, source.name):
        return tuple(offered)
    always = {"_key"} if source.format == "debezium" else set()  # a sink to a topic writes its changes under it
    words = always | set(re.findall(r"\w+", " ".join(_sql_texts(pipeline)).lower()))
    return tuple(name for name in offered if name in words)


def _needs_whole_rows(pipeline: Pipeline, name: str) -> bool:
    if any(sink.view == name and not isinstance(sink, TopicSink) for sink in pipeline.sinks):
        return True
    if any(isinstance(step, PythonStep) for step in pipeline.steps):
        return True
    return any(_STAR.search(text) for text in _sql_texts(pipeline))


def _sql_texts(pipeline: Pipeline) -> Iterator[str]:
    """Yield all texts that may contain the name of a column."""
    for view in (*pipeline.sources.values(), *pipeline.steps):
        if not isinstance(view, TableSource):
            yield from view.deduplicate
            if view.watermark:
                yield view.watermark.column
        if isinstance(view, SqlStep):
            yield view.sql
    for sink in pipeline.sinks:
        if isinstance(sink, TopicSink):
            yield from (text for text in (sink.key, sink.value, sink.route, sink.partition) if text)
            yield from sink.headers.values()


def topic_view(parsed: Parsed, source: TopicSource, metadata: tuple[str, ...]) -> DataFrame:
    """Return the good records as rows. dead_letters.py has handled the bad ones before."""
    columns = [parsed.row.getField(field.name).alias(field.name) for field in parsed.schema.fields]
    return parsed.frame.select(*columns, *(_metadata(name, source) for name in metadata))


def _metadata(name: str, source: TopicSource) -> Column:
    column = F.col(METADATA[name])
    if name == "_key" and source.format != "raw":
        # Keys may be any bytes, and SQL functions have no defined result on invalid UTF-8.
        column = F.make_valid_utf8(column.cast("string"))
    return column.alias(name)


# --- files and tables -----------------------------------------------------------------------------------------------


def counted(frame: DataFrame, name: str) -> DataFrame:
    """Return the rows of a stream, and report their number in the progress of the query; of changes of a database also
    when the last one was committed. Not for files: Spark would no longer skip what a filter leaves out."""
    if not frame.isStreaming:
        return frame
    last_change_ms = F.max("_ts_ms") if "_ts_ms" in frame.columns else F.lit(None).cast("bigint")
    return frame.observe(f"{name}{READ}", F.count(F.lit(1)).alias("rows"), last_change_ms.alias("last_change_ms"))


def static_or_watched(session: SparkSession, source: FileSource | TableSource, mode: Mode) -> DataFrame:
    if isinstance(source, TableSource):
        # Spark plans the read of a Python source once; `follow` makes each batch of a stream read the table again.
        defaults = {"path": source.path, "format": source.format, "follow": str(mode is not Mode.BATCH).lower()}
        return session.read.format("moldau-lake").options(**defaults | dict(source.options)).load()
    defaults = {"header": "true"} if source.format == "csv" else {}
    options = defaults | dict(source.options)
    schema = read_ddl(source) if source.schema is not None or source.schema_file is not None else None
    named_columns = csv_files.has_named_columns(source)
    if source.watch and mode is not Mode.BATCH:
        # The headers of files to come are not known yet: a file with another header than the schema fails the query.
        options = csv_files.strict_options(options) if named_columns else options
        stream = session.readStream.format(source.format).options(**options)
        return (stream.schema(schema) if schema else stream).load(source.path)
    if named_columns:
        return csv_files.read_csv(session, source, options)
    batch = session.read.format(source.format).options(**options)
    return (batch.schema(schema) if schema else batch).load(source.path)
