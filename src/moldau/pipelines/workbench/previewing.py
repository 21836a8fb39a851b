"""Computes the first rows of sources and steps as a batch over a few records, of the real topics or of a test case.

Only the first records of a topic are read, so that a preview is quick however large the topic is. Steps that aggregate
(counts, windows) therefore show results for these records only.
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
from moldau.pipelines.planning.sql_errors import SPARK_ERRORS, quiet
from moldau.pipelines.problems import PipelineError, did_you_mean
from moldau.pipelines.running.failures import failure_of
from moldau.pipelines.spec import Pipeline, TopicSource
from moldau.pipelines.workbench.preview import Preview
from moldau.spark.columns import SOURCE_TYPES
from moldau.spark.quoting import quoted_name

RECORDS_MAX: Final = 1000
"""How many records of each topic source are read at most."""
ROWS: Final = 20
"""How many rows of a view a preview has by default."""
RESPONSE_TIMEOUT_S: Final = 5.0
_COLUMNS: Final = tuple(name for name in SOURCE_TYPES if name != "timestampType")


class Sampled:
    """The pipeline's views over a few records, which Spark caches until this is closed."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, case: Case | None = None) -> None:
        """Raises InvalidPipeline for what Spark does not accept, PipelineError if the topics cannot be read."""
        self._cached: list[DataFrame] = []
        temporary = tempfile.mkdtemp(prefix="moldau-preview-")
        self._remove_files = weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        staged = pipeline if case is None else stage(case, pipeline, Path(temporary))
        ranges = {} if case is not None else _offset_ranges(pipeline)

        def records(session: SparkSession, source: TopicSource) -> DataFrame:
            frame = _case_records(session, source, case) if case else _first_records(session, pipeline, source, ranges)
            self._cached.append(frame.cache())
            return self._cached[-1]

        try:
            self.compiled: Compiled = compile_pipeline(staged, spark, Mode.BATCH, records=records)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Sampled:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for frame in self._cached:
            frame.unpersist()
        self._remove_files()

    def frame(self, name: str) -> DataFrame:
        """Return the rows of a source or step. Raises PipelineError if there is none with this name."""
        for view, frame in self.compiled.views.items():
            if view.casefold() == name.casefold():
                return frame
        suggestion = did_you_mean(name, self.compiled.views) or f"; there are {', '.join(self.compiled.views)}"
        raise PipelineError(f"there is no source or step {name}{suggestion}")

    def previews(self, names: Collection[str] = (), rows: int = ROWS) -> Iterator[Preview]:
        """Yield the previews of these views, or of all, as soon as each is computed."""
        for name in names or self.compiled.views:
            yield _preview(name, self.frame(name), rows)


def _preview(name: str, frame: DataFrame, rows: int) -> Preview:
    began_s = time.monotonic()
    texts = [F.col(quoted_name(column)).cast("string") for column in frame.columns]
    try:
        with quiet():
            first = [tuple(row) for row in frame.select(*texts).limit(rows + 1).collect()]
    except SPARK_ERRORS as error:
        return Preview(name=name, seconds=time.monotonic() - began_s, error=failure_of(str(error)).message)
    return Preview(
        name=name,
        columns=tuple(frame.columns),
        rows=tuple(first[:rows]),
        has_more=len(first) > rows,
        seconds=time.monotonic() - began_s,
    )


OffsetRanges = Mapping[TopicPartition, tuple[int, int]]


def _first_records(session: SparkSession, pipeline: Pipeline, source: TopicSource, ranges: OffsetRanges) -> DataFrame:
    own_ranges = {partition: ranges[partition] for partition in ranges if source.reads(partition.topic)}
    begins: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for (topic, partition), (begin, end) in own_ranges.items():
        share = max(1, RECORDS_MAX // len(own_ranges))
        begins.setdefault(topic, {})[partition] = begin
        ends.setdefault(topic, {})[partition] = min(end, begin + share)
    columns = tuple(name for name in _COLUMNS if name != "headers" or source.headers)
    return topic_records(session, pipeline, source, columns, Mode.BATCH, Range(start=begins, end=ends))


def _offset_ranges(pipeline: Pipeline) -> OffsetRanges:
    """Return the first and the end offset of each partition that the pipeline reads."""
    assert pipeline.bootstrap is not None
    sources = [source for source in pipeline.sources.values() if isinstance(source, TopicSource)]
    try:
        with closing(Cluster(pipeline.bootstrap, pipeline.kafka, RESPONSE_TIMEOUT_S)) as cluster:
            existing = cluster.topics()
            if missing := [topic for source in sources for topic in source.topics if topic not in existing]:
                raise PipelineError(f"there is no topic {missing[0]}{did_you_mean(missing[0], existing)}")
            read = [topic for topic in existing.values() if any(source.reads(topic.name) for source in sources)]
            partitions = [TopicPartition(topic.name, number) for topic in read for number in topic.leaders]
            begins, ends = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST)), cluster.latest(partitions)
            return {partition: (begins[partition], ends[partition]) for partition in partitions}
    except (KafkaError, UnusableProperty) as error:
        raise PipelineError(f"the topics cannot be read: {error}") from error
    except (OSError, MalformedData) as error:
        hint = "start a broker with `moldau start`, name one with -b HOST:PORT, or give a --case"
        raise PipelineError(f"{error}; {hint}") from error


def _case_records(session: SparkSession, source: TopicSource, case: Case) -> DataFrame:
    file = case.inputs.get(source.name)
    records = read_input(file) if file else []
    rows = [_row(record, source, offset) for offset, record in enumerate(records)]
    schema = StructType([StructField(name, SOURCE_TYPES[name]) for name in _COLUMNS])
    return session.createDataFrame(rows, schema)


def _row(record: InputRecord, source: TopicSource, offset: int) -> tuple[object, ...]:
    topic = record.topic or (source.topics[0] if source.topics else source.name)
    headers = list(record.headers.items())
    at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    return record.key, record.value, topic, record.partition or 0, offset, at, headers
