"""The first rows of sources and steps, computed as a batch over a few records: of the real topics, or of a test case.

A topic is read from its beginning, and only so far: what is shown comes in a moment
whatever the topic holds. Rows that a step makes of all records (counts, windows) are those of these records alone.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, Cluster
from moldau.pipelines.cases.case import stage
from moldau.pipelines.cases.files import Case, InputRecord, read_input
from moldau.pipelines.planning.compiling import Compiled, Mode, Range, compile_pipeline
from moldau.pipelines.planning.sources import topic_records
from moldau.pipelines.planning.sql_errors import quiet
from moldau.pipelines.problems import PipelineError, did_you_mean
from moldau.pipelines.reading.sources import reads
from moldau.pipelines.running.failures import failure_of
from moldau.pipelines.spec import Pipeline, TopicSource
from moldau.pipelines.workbench.preview import Preview
from moldau.spark.columns import TYPES

RECORDS_MAX: Final = 1000
"""Of each topic's source."""
ROWS: Final = 20
ANSWER_S: Final = 5.0
_COLUMNS: Final = tuple(name for name in TYPES if name != "timestampType")


class Sampled:
    """The pipeline's views over a few records, which Spark keeps until this is closed."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, case: Case | None = None) -> None:
        """InvalidPipeline for what Spark does not accept; PipelineError if the topics cannot be read."""
        self._kept: list[DataFrame] = []
        temporary = tempfile.mkdtemp(prefix="moldau-preview-")
        self._remove_files = weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        staged = pipeline if case is None else stage(case, pipeline, Path(temporary))
        ranges = {} if case is not None else _ranges(pipeline)

        def records(session: SparkSession, source: TopicSource) -> DataFrame:
            found = _of_case(session, source, case) if case else _of_topic(session, pipeline, source, ranges)
            self._kept.append(found.cache())
            return self._kept[-1]

        self.compiled: Compiled = compile_pipeline(staged, spark, Mode.BATCH, records=records)

    def __enter__(self) -> Sampled:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()
        self._remove_files()

    def frame(self, name: str) -> DataFrame:
        for known, frame in self.compiled.views.items():
            if known.casefold() == name.casefold():
                return frame
        near = did_you_mean(name, self.compiled.views) or f"; there are {', '.join(self.compiled.views)}"
        raise PipelineError(f"there is no source or step {name}{near}")

    def previews(self, names: Collection[str] = (), rows: int = ROWS) -> Iterator[Preview]:
        """One by one, as they are computed: of these views, or of all."""
        for name in names or self.compiled.views:
            yield _preview(name, self.frame(name), rows)


def _preview(name: str, frame: DataFrame, rows: int) -> Preview:
    began_s = time.monotonic()
    texts = [F.col(f"`{column.replace('`', '``')}`").cast("string") for column in frame.columns]
    try:
        with quiet():
            found = [tuple(row) for row in frame.select(*texts).limit(rows + 1).collect()]
    except PySparkException as error:
        return Preview(name=name, seconds=time.monotonic() - began_s, error=failure_of(str(error)).message)
    return Preview(
        name=name,
        columns=tuple(frame.columns),
        rows=tuple(found[:rows]),
        has_more=len(found) > rows,
        seconds=time.monotonic() - began_s,
    )


Ranges = Mapping[TopicPartition, tuple[int, int]]


def _of_topic(session: SparkSession, pipeline: Pipeline, source: TopicSource, ranges: Ranges) -> DataFrame:
    its = {where: ranges[where] for where in ranges if reads(source, where.topic)}
    begins: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for (topic, partition), (begin, end) in its.items():
        share = max(1, RECORDS_MAX // len(its))
        begins.setdefault(topic, {})[partition] = begin
        ends.setdefault(topic, {})[partition] = min(end, begin + share)
    columns = tuple(name for name in _COLUMNS if name != "headers" or source.headers)
    return topic_records(session, pipeline, source, columns, Mode.BATCH, Range(start=begins, end=ends))


def _ranges(pipeline: Pipeline) -> Ranges:
    """Where the partitions begin and end that the pipeline reads."""
    assert pipeline.bootstrap is not None
    sources = [source for source in pipeline.sources.values() if isinstance(source, TopicSource)]
    try:
        with closing(Cluster(pipeline.bootstrap, pipeline.kafka, ANSWER_S)) as cluster:
            there = cluster.topics()
            if missing := [topic for source in sources for topic in source.topics if topic not in there]:
                raise PipelineError(f"there is no topic {missing[0]}{did_you_mean(missing[0], there)}")
            read = [topic for topic in there.values() if any(reads(source, topic.name) for source in sources)]
            places = [TopicPartition(topic.name, number) for topic in read for number in topic.leaders]
            begins, ends = cluster.list_offsets(dict.fromkeys(places, EARLIEST)), cluster.latest(places)
            return {where: (begins[where], ends[where]) for where in places}
    except (KafkaError, UnusableProperty) as error:
        raise PipelineError(f"the topics cannot be read: {error}") from error
    except (OSError, MalformedData) as error:
        way_out = "start a broker with `moldau start`, name one with -b HOST:PORT, or give a --case"
        raise PipelineError(f"{error}; {way_out}") from error


def _of_case(session: SparkSession, source: TopicSource, case: Case) -> DataFrame:
    file = case.inputs.get(source.name)
    records = read_input(file) if file else []
    rows = [_row(record, source, offset) for offset, record in enumerate(records)]
    schema = StructType([StructField(name, TYPES[name]) for name in _COLUMNS])
    return session.createDataFrame(rows, schema)


def _row(record: InputRecord, source: TopicSource, offset: int) -> tuple[object, ...]:
    at_s = time.time() if record.timestamp_ms is None else record.timestamp_ms / 1000
    topic = record.topic or (source.topics[0] if source.topics else source.name)
    headers = [(name, text.encode()) for name, text in record.headers.items()]
    at = datetime.fromtimestamp(at_s, UTC)
    return record.key, record.value, topic, record.partition or 0, offset, at, headers
