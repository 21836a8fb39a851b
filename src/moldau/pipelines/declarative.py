"""Writes a pipeline as a project of Spark's Declarative Pipelines, to go on with there. Pure: texts from the spec.

Sources and steps become temporary views, sinks to topics sinks with a flow, appended tables tables. What has no
counterpart is left out and listed: dead letters, upserts, databases, backends. Passwords become environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Final

from moldau.client.secret_properties import is_secret
from moldau.pipelines.spec import (
    BackendSource,
    ConsoleSink,
    DatabaseSource,
    FileSource,
    Pipeline,
    PythonStep,
    Sink,
    SqlStep,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)
from moldau.pipelines.sql_names import mentions, views_used

PROJECT: Final = "spark-pipeline.yml"
TRANSFORMATIONS: Final = "transformations/pipeline.py"
KAFKA: Final = "kafka."
_METADATA: Final = {
    "_key": "cast(key as string)",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}
"""Columns about records, and the expressions that make them."""
_STREAM: Final = re.compile(r"\bstream\s*\(?\s*$", re.IGNORECASE)
HEAD: Final = '''\
"""The pipeline {name} for Spark's Declarative Pipelines.

Run it with: spark-pipelines run --conf spark.sql.catalogImplementation=hive
{left_out}"""

import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
'''


@dataclass(frozen=True, slots=True)
class Project:
    files: Mapping[str, str]
    """By path in the project's folder."""
    left_out: Sequence[str]
    """What the project does not do, a sentence each."""


def project(pipeline: Pipeline, storage: str) -> Project:
    """Return the project; `storage` is the URL of a directory for its checkpoints."""
    writer = _Writer(pipeline)
    for source in pipeline.sources.values():
        writer.source(source)
    for step in pipeline.steps:
        writer.step(step)
    for sink in pipeline.sinks:
        writer.sink(sink)
    left_out = "".join(f"\nNot taken over: {each}" for each in writer.left_out)
    head = HEAD.format(name=pipeline.name, left_out=left_out + "\n" if left_out else "")
    if "os.environ" not in "".join(writer.parts):
        head = head.replace("import os\n\n", "")
    spec = f"name: {pipeline.name}\nstorage: {storage}\nlibraries:\n  - glob: {{include: transformations/**}}\n"
    return Project({PROJECT: spec, TRANSFORMATIONS: "\n\n".join([head, *writer.parts])}, writer.left_out)


@dataclass(slots=True)
class _Writer:
    pipeline: Pipeline
    parts: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    streams: set[str] = field(default_factory=set)
    """Views that are streams."""

    # --- sources ----------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def source(self, source: object) -> None:
        raise AssertionError(f"a source of an unknown kind: {source}")

    @source.register
    def _(self, source: TopicSource) -> None:
        parsed = self._parsed(source)
        if parsed is None:
            self._leave(f"source {source.name}: format {source.format} needs an expression of your own")
            return
        options = self._options(source.options) | _subscription(source)
        reader = f"spark.readStream.format({self.pipeline.connector!r}).options(**{_dict(options)}).load()"
        columns = [parsed, *(f"{_METADATA[each]} as {each}" for each in self._metadata())]
        body = f"    records = {reader}\n    return records.selectExpr({', '.join(map(repr, columns))})"
        if source.format not in ("raw", "text"):
            names = ["row.*", *self._metadata()]
            body += f'.where("row is not null").select({", ".join(map(repr, names))})'
            self._leave(f"the dead letters of source {source.name}: bad records are left out, or have nulls")
        self._view(source.name, body, is_stream=True)
        self._rest(source)

    def _parsed(self, source: TopicSource) -> str | None:
        """Return the expression of a record's columns; None where Spark has none."""
        if source.format in ("text", "raw"):
            return "cast(value as string) as value" if source.format == "text" else "value"
        if source.format in ("json", "csv") and source.schema is not None:
            schema = source.schema.replace("'", "\\'")
            return f"from_{source.format}(cast(value as string), '{schema}') as row"
        return None

    def _metadata(self) -> list[str]:
        """Return the columns about records that the pipeline names."""
        texts = [step.sql for step in self.pipeline.steps if isinstance(step, SqlStep)]
        texts += [
            text
            for sink in self.pipeline.sinks
            if isinstance(sink, TopicSink)
            for text in (sink.key, sink.value)
            if text
        ]
        words = set(re.findall(r"\w+", " ".join(texts).lower()))
        return [name for name in _METADATA if name in words]

    @source.register
    def _(self, source: FileSource) -> None:
        defaults = {"header": "true"} if source.format == "csv" else {}
        schema = f".schema({source.schema!r})" if source.schema else ""
        read = "spark.readStream" if source.watch else "spark.read"
        options = f".options(**{_dict(defaults | dict(source.options))})" if defaults or source.options else ""
        self._view(
            source.name,
            f"    return {read}.format({source.format!r}){schema}{options}.load({source.path!r})",
            source.watch,
        )
        self._rest(source)

    @source.register
    def _(self, source: TableSource) -> None:
        options = {"path": source.path, "format": source.format} | dict(source.options)
        self._view(
            source.name, f'    return spark.read.format("moldau-lake").options(**{_dict(options)}).load()', False
        )

    @source.register
    def _(self, source: DatabaseSource) -> None:
        self._leave(
            f"source {source.name}: the changes of a database; let this pipeline write them to a topic, and read that"
        )

    @source.register
    def _(self, source: BackendSource) -> None:
        self._leave(f"source {source.name}: a class of your own")

    # --- steps ------------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def step(self, step: object) -> None:
        raise AssertionError(f"a step of an unknown kind: {step}")

    @step.register
    def _(self, step: SqlStep) -> None:
        is_stream = bool(views_used(step.sql, self.streams))
        sql = streaming(step.sql.strip(), self.streams).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        self._view(step.name, f'    return spark.sql("""\n{_indented(sql)}\n    """)', is_stream)
        self._rest(step)

    @step.register
    def _(self, step: PythonStep) -> None:
        reads = [f"spark.{'readStream' if each in self.streams else 'read'}.table({each!r})" for each in step.inputs]
        given = [*reads, *(f"{name}={value!r}" for name, value in step.args.items())]
        body = f"    from {step.module} import {step.function}\n\n    return {step.function}({', '.join(given)})"
        self._view(step.name, body, any(each in self.streams for each in step.inputs))
        self._leave(f"the module {step.module}: copy {step.module}.py beside {PROJECT}")
        self._rest(step)

    # --- sinks ------------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def sink(self, sink: Sink) -> None:
        self._leave(f"sink {sink.name}: Declarative Pipelines write to topics and tables")

    @sink.register
    def _(self, sink: ConsoleSink) -> None:
        self._leave(f"sink {sink.name}: the console")

    @sink.register
    def _(self, sink: TopicSink) -> None:
        if sink.mode != "append" or sink.format not in ("json", "csv") or sink.envelope or sink.topic is None:
            self._leave(f"sink {sink.name}: only rows that are appended to one topic as json or csv")
            return
        name = _identifier(sink.name)
        options = self._options(sink.options) | {"topic": sink.topic}
        value = f"cast(({sink.value}) as string)" if sink.value else f"to_{sink.format}(struct(*))"
        columns = [f"{value} as value", *([f"cast(({sink.key}) as string) as key"] if sink.key else [])]
        self.parts.append(
            f"dp.create_sink({name!r}, {self.pipeline.connector!r}, {_dict(options)})\n\n\n"
            f"@dp.append_flow(target={name!r})\ndef {name}_flow():\n"
            f"    return spark.readStream.table({sink.view!r}).selectExpr({', '.join(map(repr, columns))})\n"
        )
        if not sink.value and self._metadata():
            self._leave(f"sink {sink.name} writes {', '.join(self._metadata())} too, where its rows have them")
        if sink.headers or sink.partition:
            self._leave(f"headers and partitions of sink {sink.name}")

    @sink.register
    def _(self, sink: TableSink) -> None:
        if sink.mode != "append":
            self._leave(f"sink {sink.name}: mode {sink.mode}; see dp.create_auto_cdc_flow")
            return
        name = _identifier(sink.name)
        format_ = "" if sink.format == "parquet" else f", format={sink.format!r}"
        body = f"    return spark.readStream.table({sink.view!r})"
        self.parts.append(f"@dp.table(name={name!r}{format_})\ndef {name}_table():\n{body}\n")
        self._leave(f"the path of sink {sink.name}: the table is in Spark's catalog")

    # --- parts ------------------------------------------------------------------------------------------------------

    def _view(self, name: str, body: str, is_stream: bool) -> None:
        if is_stream:
            self.streams.add(name)
        self.parts.append(f"@dp.temporary_view(name={name!r})\ndef {_identifier(name)}():\n{body}\n")

    def _options(self, options: Mapping[str, str]) -> dict[str, str]:
        servers = {} if self.pipeline.bootstrap is None else {f"{KAFKA}bootstrap.servers": self.pipeline.bootstrap}
        return servers | {KAFKA + name: value for name, value in self.pipeline.kafka.items()} | dict(options)

    def _rest(self, rows: TopicSource | FileSource | SqlStep | PythonStep) -> None:
        if rows.watermark or rows.deduplicate:
            self._leave(
                f"watermark and deduplicate of {rows.name}: add .withWatermark(…) and .dropDuplicatesWithinWatermark(…)"
            )

    def _leave(self, what: str) -> None:
        self.left_out.append(what)


def streaming(sql: str, streams: set[str]) -> str:
    """Return the statement with STREAM(…) around the views that are streams."""
    parts: list[str] = []
    at = 0
    for use in mentions(sql, streams):
        if not _STREAM.search(sql[: use.offset]):
            end = _end_of_name(sql, use.offset)
            parts += [sql[at : use.offset], f"STREAM({sql[use.offset : end]})"]
            at = end
    return "".join([*parts, sql[at:]])


def _end_of_name(sql: str, begin: int) -> int:
    match = re.compile(r"`(?:[^`]|``)*`|\w+").match(sql, begin)
    assert match is not None, "a name is there"
    return match.end()


def _subscription(source: TopicSource) -> dict[str, str]:
    topics = {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
    return topics | ({"startingOffsets": source.start} if isinstance(source.start, str) else {})


def _identifier(name: str) -> str:
    cleaned = re.sub(r"\W", "_", name)
    return cleaned if not cleaned[:1].isdigit() else f"_{cleaned}"


def _dict(options: Mapping[str, str]) -> str:
    """Return the options as Python; secrets come from the environment when the project runs."""
    return "{" + ", ".join(f"{name!r}: {_value(name, value)}" for name, value in sorted(options.items())) + "}"


def _value(name: str, value: str) -> str:
    if not is_secret(name.removeprefix(KAFKA)):
        return repr(value)
    return f'os.environ["{re.sub("[^A-Z0-9]+", "_", name.upper())}"]'


def _indented(text: str) -> str:
    return "\n".join(f"        {line}" if line.strip() else "" for line in text.splitlines())
