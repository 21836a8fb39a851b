"""Feeds the files of a test case through the real pipeline on Spark, and compares the output with expected files.

The pipeline is the real one, but its topics are on a broker for this test, and its tables and state in a temporary
directory. It runs until it has caught up. The caller starts the broker and Spark.
"""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moldau.backends.catalog import KINDS
from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition as Partition
from moldau.client.cluster import Cluster
from moldau.databases import writing
from moldau.databases.destinations import Destination
from moldau.databases.errors import DatabaseError
from moldau.databases.sql import table_name
from moldau.databases.urls import parse_url
from moldau.pipelines.cases.changes import staged_changes
from moldau.pipelines.cases.comparing import Difference, compare_records, compare_rows
from moldau.pipelines.cases.files import (
    BadCase,
    Case,
    InputRecord,
    check_inputs,
    read_expected,
    read_input,
    read_rows,
)
from moldau.pipelines.cases.result import CaseResult
from moldau.pipelines.planning.compiling import Mode
from moldau.pipelines.planning.flows import LAKE
from moldau.pipelines.problems import PipelineError, did_you_mean
from moldau.pipelines.queries import DEAD_LETTERS, sinks_by_query
from moldau.pipelines.running.bad_records import fate_in_test
from moldau.pipelines.running.failures import failure_of
from moldau.pipelines.running.launching import RunOptions, launch
from moldau.pipelines.running.silence import Silence
from moldau.pipelines.running.spark_checkpoint import SparkCheckpoint
from moldau.pipelines.running.state_directory import StateDirectory
from moldau.pipelines.running.stop_request import Stop
from moldau.pipelines.spec import (
    BackendSink,
    BackendSource,
    ConsoleSink,
    DatabaseSink,
    DatabaseSource,
    FileSource,
    Pipeline,
    Sink,
    Source,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_FORMATS: Final = {".csv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet", ".txt": "text"}
RESPONSE_TIMEOUT_S: Final = 30.0
Records = Sequence[Mapping[str, Any]]


def run_case(case: Case, pipeline: Pipeline, spark: SparkSession) -> CaseResult:
    """Run one case; `pipeline.bootstrap` is an empty broker."""
    began_s = time.monotonic()
    outputs: Mapping[str, Sequence[Any]] = {}
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    story: str | None = None
    closed: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory(prefix="moldau-test-") as temporary:
        directory = StateDirectory(Path(temporary) / "state")
        try:
            check_expected(case, pipeline)
            staged = stage(case, pipeline, Path(temporary))
            _produce_input(case, staged)
            closed = _run(staged, directory, spark)
            outputs = {name: _output(name, staged, spark) for name in sorted(_outputs(staged))}
            differences = tuple(_compare(case, name, staged, outputs) for name in case.expected)
        except PipelineError as exception:
            error = str(exception)
            story = directory.failures.read_text(encoding="utf-8") if directory.failures.exists() else None
    return CaseResult(
        case=case, seconds=time.monotonic() - began_s, differences=differences, error=error, outputs=outputs,
        story=story, closed=closed,
    )  # fmt: skip


# --- before -----------------------------------------------------------------------------------------------------------


def check_expected(case: Case, pipeline: Pipeline) -> None:
    """Raise BadCase for an expected file that belongs to no sink."""
    for name in case.expected:
        if name not in _outputs(pipeline):
            suggestion = did_you_mean(name, _outputs(pipeline)) or f"; it has {', '.join(_outputs(pipeline))}"
            hint = "if its sink was renamed, rename the file; if it is gone, delete the file"
            raise BadCase(f"{case.expected[name]}: the pipeline has no sink {name}{suggestion} ({hint})")


def stage(case: Case, pipeline: Pipeline, temporary: Path) -> Pipeline:
    """Return the pipeline with the case's files as its input, and with its tables in the temporary directory."""
    check_inputs(case)
    for name in case.inputs:
        if name not in pipeline.sources:
            suggestion = did_you_mean(name, pipeline.sources)
            raise BadCase(f"{case.inputs[name]}: the pipeline has no source {name}{suggestion}")
    tables = [sink for sink in pipeline.sinks if isinstance(sink, TableSink)]
    new_paths = {sink.path: str(temporary / "tables" / sink.name) for sink in tables}
    sources = {name: _source(source, case, new_paths, temporary) for name, source in pipeline.sources.items()}
    checked = (recorded(sink) if isinstance(sink, BackendSink) else sink for sink in pipeline.sinks)
    without_console = [sink for sink in checked if not isinstance(sink, ConsoleSink)]
    names = {sink.name for sink in without_console}
    files = dict.fromkeys(sink.database for sink in pipeline.sinks if isinstance(sink, DatabaseSink))
    new_urls = {url: f"sqlite:///{temporary}/database-{number}.db" for number, url in enumerate(files)}
    sinks = tuple(_sink(sink, new_paths | new_urls, names) for sink in without_console)
    return replace(pipeline, sources=sources, sinks=sinks)


def recorded(sink: BackendSink) -> TopicSink:
    """Return a topic with what would be sent to the backend: the one part that it has, or an object of its parts."""
    kind = KINDS.get(sink.backend)
    value: str | None = None
    if kind is not None and sink.parts.keys() - {kind.default}:
        fields = ", ".join(f"'{name}', string({text})" for name, text in sink.parts.items())
        value = f"to_json(named_struct({fields}))"
    elif kind is not None and kind.default is not None:
        value = sink.parts.get(kind.default)
    return TopicSink(
        name=sink.name,
        place=sink.place,
        view=sink.view,
        topic=f"backend.{sink.name}",
        key=sink.key,
        value=value,
        headers=sink.headers,
        mode=sink.mode,
        trigger=sink.trigger,
        shares_query_of=sink.shares_query_of,
    )


def _sink(sink: Sink, new_paths: Mapping[str, str], names: Collection[str]) -> Sink:
    if sink.shares_query_of not in names:
        sink = replace(sink, shares_query_of=None)
    if isinstance(sink, DatabaseSink):
        # In SQLite a table is in no schema.
        table = sink.table.replace(".", "_")
        return replace(sink, database=new_paths[sink.database], table=table, trigger=None)
    return replace(sink, path=new_paths[sink.path], trigger=None) if isinstance(sink, TableSink) else sink


def _source(source: Source, case: Case, new_paths: Mapping[str, str], temporary: Path) -> Source:
    input_file = case.inputs.get(source.name)
    if isinstance(source, TopicSource):
        return replace(source, start="earliest")
    if isinstance(source, DatabaseSource):
        return replace(source, staged=staged_changes(source, input_file, temporary / "changes" / source.name))
    if isinstance(source, BackendSource):
        source, input_file = _as_files(source), input_file or _no_rows(temporary)
    if input_file is None:
        is_table = isinstance(source, TableSource)
        return replace(source, path=new_paths.get(source.path, source.path)) if is_table else source
    if isinstance(source, TableSource):
        kind: Any = FILE_FORMATS.get(input_file.suffix, "json")
        header = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
        return FileSource(name=source.name, place=source.place, path=str(input_file), format=kind, options=header)
    if not source.watch:
        return replace(source, path=str(input_file))
    watched = temporary / "watched" / source.name
    watched.mkdir(parents=True)
    shutil.copy(input_file, watched)
    return replace(source, path=str(watched))


def _as_files(source: BackendSource) -> FileSource:
    """Return the watched files that stand for a class."""
    return FileSource(
        name=source.name, place=source.place, path="", format="json", schema=source.schema,
        schema_file=source.schema_file, watch=True, watermark=source.watermark, deduplicate=source.deduplicate,
    )  # fmt: skip


def _no_rows(temporary: Path) -> Path:
    empty = temporary / "empty.jsonl"
    empty.touch()
    return empty


def _produce_input(case: Case, pipeline: Pipeline) -> None:
    """Create the topics of all sources, and produce the records of the case to them."""
    from moldau.client.confluent import KafkaException, Producer

    assert pipeline.bootstrap is not None
    records = {name: read_input(case.inputs[name]) for name, _ in _topic_sources(pipeline) if name in case.inputs}
    partitions: dict[str, int] = {}
    for name, source in _topic_sources(pipeline):
        for topic in source.topics:
            partitions.setdefault(topic, 1)
        for record in records.get(name, ()):
            topic = _topic_of(record, source, case)
            partitions[topic] = max(partitions.get(topic, 1), (record.partition or 0) + 1)
    try:
        with closing(Cluster(pipeline.bootstrap, {})) as cluster:
            for topic, count in partitions.items():
                cluster.create_topic(topic, count)
        producer = Producer({"bootstrap.servers": pipeline.bootstrap})
        for name, source in _topic_sources(pipeline):
            for record in records.get(name, ()):
                _produce(producer, _topic_of(record, source, case), record)
        if left := producer.flush(RESPONSE_TIMEOUT_S):
            raise BadCase(f"{case.folder}: {left} records are not written to the topics after {RESPONSE_TIMEOUT_S:g} s")
    except KafkaError as error:
        raise BadCase(f"{case.folder}: the topics cannot be made: {error}") from error
    except KafkaException as error:
        raise BadCase(f"{case.folder}: the records cannot be written to the topics: {error.args[0].str()}") from error


def _topic_sources(pipeline: Pipeline) -> Iterator[tuple[str, TopicSource]]:
    return ((name, source) for name, source in pipeline.sources.items() if isinstance(source, TopicSource))


def _topic_of(record: InputRecord, source: TopicSource, case: Case) -> str:
    if record.topic is not None:
        return record.topic
    if not source.topics:
        raise BadCase(f'{case.inputs[source.name]}: the source reads a pattern, so each record needs a "topic"')
    return source.topics[0]


def _produce(producer: Any, topic: str, record: InputRecord) -> None:
    more = {"headers": list(record.headers.items()), "timestamp": record.timestamp_ms}
    while True:
        try:
            producer.produce(topic, record.value, record.key, record.partition or 0, **more)
            return
        except BufferError:  # the queue is full: wait until the broker has some of it
            producer.poll(0.1)


# --- during and after -------------------------------------------------------------------------------------------------


def _run(pipeline: Pipeline, directory: StateDirectory, spark: SparkSession) -> tuple[str, ...]:
    """Run until all records are processed and every window is closed. Return the queries that had open windows.

    In mode append a window is written when it is over, so it stays open after the last record of a case, as in a topic
    without new records. A test would never see it.
    """
    _run_queries(pipeline, directory, spark, _outputs(pipeline))
    appended = [name for name, sinks in sinks_by_query(pipeline.sinks).items() if sinks[0].mode == "append"]
    closed = [name for name in appended if SparkCheckpoint(directory.checkpoint(name)).plan_last_batch()]
    if closed:
        _run_queries(pipeline, directory, spark, closed)
    return tuple(closed)


def _run_queries(pipeline: Pipeline, directory: StateDirectory, spark: SparkSession, only: Collection[str]) -> None:
    options = RunOptions(mode=Mode.UNTIL_CAUGHT_UP, only=only, fate=fate_in_test)
    ended = launch(pipeline, directory, options, lambda on_phase: spark, Silence(), Stop())
    if ended.state == "failed":
        raise PipelineError(ended.message or "the run failed")


def _outputs(pipeline: Pipeline) -> dict[str, Sink | TopicSource]:
    """Return the outputs that a test can check, by name: sinks except the console, and dead letters of sources."""
    outputs: dict[str, Sink | TopicSource] = {
        sink.name: sink for sink in pipeline.sinks if not isinstance(sink, ConsoleSink)
    }
    for name, source in _topic_sources(pipeline):
        if source.dead_letter_topic is not None and source.format != "raw":
            outputs[name + DEAD_LETTERS] = source
    return outputs


def _compare(case: Case, name: str, pipeline: Pipeline, outputs: Mapping[str, Sequence[Any]]) -> Difference:
    if isinstance(_outputs(pipeline)[name], TableSink | DatabaseSink):
        return compare_rows(name, read_rows(case.expected[name]), outputs[name])
    return compare_records(name, read_expected(case.expected[name]), outputs[name])


def _output(name: str, pipeline: Pipeline, spark: SparkSession) -> Sequence[Any]:
    output = _outputs(pipeline)[name]
    if isinstance(output, TableSink):
        return _rows(output, spark)
    if isinstance(output, DatabaseSink):
        return _database_rows(output)
    assert pipeline.bootstrap is not None
    assert isinstance(output, TopicSource | TopicSink)
    topic = output.dead_letter_topic if isinstance(output, TopicSource) else output.topic
    if topic is not None:
        return _records(pipeline.bootstrap, lambda name: name == topic)
    return _records(pipeline.bootstrap, lambda name: not _is_fixed(name, pipeline))


def _is_fixed(topic: str, pipeline: Pipeline) -> bool:
    """Return whether no `route` writes to the topic: it is an input, has dead letters, or is that of a sink."""
    if any(source.reads(topic) or source.dead_letter == topic for _, source in _topic_sources(pipeline)):
        return True
    return any(isinstance(sink, TopicSink) and sink.topic == topic for sink in pipeline.sinks)


def _rows(sink: TableSink, spark: SparkSession) -> Sequence[Any]:
    from pyspark.sql import functions as F

    from moldau.pipelines.planning.sql_errors import SPARK_ERRORS

    if not Path(sink.path).exists():
        return []
    try:
        table = spark.read.format(LAKE).option("path", sink.path).option("format", sink.format).load()
        return [json.loads(row[0]) for row in table.select(F.to_json(F.struct("*"))).collect()]
    except SPARK_ERRORS as error:
        raise PipelineError(f"{sink.name}: its table cannot be read: {failure_of(str(error)).message}") from error


def _database_rows(sink: DatabaseSink) -> Sequence[Any]:
    """Return the rows with booleans and JSON as such: SQLite has numbers and texts for them."""
    try:
        return [
            {name: _sqlite_value(value, sql_type) for name, (value, sql_type) in row.items()}
            for row in writing.typed_content(Destination(url=parse_url(sink.database), table=table_name(sink.table)))
        ]
    except DatabaseError as error:
        raise PipelineError(f"{sink.name}: its table cannot be read: {error}") from error


def _sqlite_value(value: Any, sql_type: str) -> Any:
    if value is None:
        return None
    if sql_type == "JSON":
        return json.loads(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()  # as in JSON of Spark
    return bool(value) if sql_type == "BOOLEAN" else value


def _records(bootstrap: str, is_output: Callable[[str], bool]) -> Records:
    """Return all records of the topics for which `is_output` is true. Internal topics are left out."""
    from moldau.client.confluent import KafkaError as ClientError
    from moldau.client.confluent import TopicPartition

    unfinished = set(_wait_for_transactions(bootstrap, is_output))
    records: list[Mapping[str, Any]] = []
    with _consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(*partition, 0) for partition in unfinished])
        while unfinished:
            message = consumer.poll(RESPONSE_TIMEOUT_S)
            if message is not None and message.error() is None:
                records.append(_record(message))
            elif message is not None and message.error().code() == ClientError._PARTITION_EOF:
                unfinished.discard(Partition(message.topic(), message.partition()))
            else:
                names = ", ".join(sorted({topic for topic, _ in unfinished}))
                raise PipelineError(f"the output in {names} cannot be read")
    return records


def _wait_for_transactions(bootstrap: str, is_output: Callable[[str], bool]) -> list[Partition]:
    """Wait until no transaction is open in these topics (the last may just be ending), and return their partitions."""
    cluster = Cluster(bootstrap, {})
    try:
        existing = cluster.topics().values()
        read = [topic for topic in existing if not topic.is_internal and is_output(topic.name)]
        partitions = [Partition(topic.name, number) for topic in read for number in topic.leaders]
        deadline_s = time.monotonic() + RESPONSE_TIMEOUT_S
        while cluster.latest(partitions, read_committed=True) != cluster.latest(partitions):
            if time.monotonic() > deadline_s:
                raise PipelineError(f"a transaction in {', '.join(sorted(topic.name for topic in read))} does not end")
            time.sleep(0.01)
        return partitions
    finally:
        cluster.close()


@contextmanager
def _consumer(bootstrap: str) -> Iterator[Any]:
    from moldau.client.confluent import Consumer

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "moldau-pipeline-test",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()


def _record(message: Any) -> dict[str, Any]:
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "timestamp": message.timestamp()[1],
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": {name: _text(value) for name, value in message.headers() or ()},
    }


def _text(content: bytes | None) -> str | None:
    """Return the bytes as text. Bytes that are not UTF-8 are escaped, so that they can be compared."""
    return None if content is None else content.decode("utf-8", errors="backslashreplace")
