"""The `sources` of a pipeline file: topics, files and tables, each a view under its name.

This module decides which keys a source has and which of them go together. `loading` checks names across sources and
steps; Spark checks later whether a schema parses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, get_args

from moldau.base.topic_names import topic_name_problem
from moldau.pipelines.ddl_columns import ddl_columns
from moldau.pipelines.problems import did_you_mean, printable, quoted
from moldau.pipelines.reading.backends import read_backend_source
from moldau.pipelines.reading.databases import DATABASE_KEYS, database_source
from moldau.pipelines.reading.option_names import FILES, TOPICS_READ, option_place, read_options
from moldau.pipelines.reading.paths import Folder, read_path
from moldau.pipelines.reading.sections import Section
from moldau.pipelines.reading.times import parse_time
from moldau.pipelines.reading.yaml_tree import MappingNode, ScalarNode
from moldau.pipelines.spec import (
    DROP,
    FAIL,
    TIME_UNITS,
    BackendSource,
    Connector,
    FileFormat,
    FileSource,
    Offsets,
    RecordFormat,
    Source,
    SourceFormat,
    Start,
    TableFormat,
    TableSource,
    Tombstone,
    TopicSource,
)

RECORD_FORMATS: Final[tuple[RecordFormat, ...]] = get_args(RecordFormat)
SOURCE_FORMATS: Final[tuple[SourceFormat, ...]] = get_args(SourceFormat)
FILE_FORMATS: Final[tuple[FileFormat, ...]] = get_args(FileFormat)
TABLE_FORMATS: Final[tuple[TableFormat, ...]] = get_args(TableFormat)
KINDS: Final = ("topic", "topics", "pattern", "file", "table", "database", "backend")
OTHER_KEYS: Final = (
    "format", "schema", "schema_file", "framing", "start", "headers", "watermark", "deduplicate", "dead_letter",
    "fail_above", "tombstone", "max_per_trigger", "options", "watch", "args",
)  # fmt: skip
SYNONYMS: Final = {"path": "file", "subscribe": "topic", "starting_offsets": "start", "dead_letters": "dead_letter"}
OPTIONS_OF_KEYS: Final = {"startingOffsets": "start", "subscribe": "topic", "subscribePattern": "pattern"}
"""Options that a key sets, and the key: what is given under `options` would have no effect."""
_SUFFIXES: Final[Mapping[str, FileFormat]] = {
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".orc": "orc",
    ".txt": "text", ".text": "text", ".log": "text",
}  # fmt: skip
TOMBSTONES: Final[tuple[Tombstone, ...]] = get_args(Tombstone)
_FRAMINGS: Final[tuple[Literal["confluent"], ...]] = ("confluent",)
_EARLIEST, _LATEST = -2, -1


def read_source(name: str, section: Section, folder: Folder, connector: Connector) -> Source | None:
    """Read one source. Return None if its kind is unclear."""
    if section.has("database"):  # its `table` is the table in the database
        return database_source(name, section, folder)
    kind = section.only_one_of(KINDS, "where does it read from?", (*OTHER_KEYS, *DATABASE_KEYS), SYNONYMS)
    if kind is None:
        return None
    if kind == "file":
        return _file_source(name, section, folder)
    if kind == "table":
        return _table_source(name, section, folder)
    if kind == "backend":
        return _backend_source(name, section, folder)
    return _topic_source(name, section, folder, connector)


def _topic_source(name: str, section: Section, folder: Folder, connector: Connector) -> TopicSource:
    topics = tuple(section.topic_name(scalar) for key in ("topic", "topics") for scalar in section.scalars(key))
    pattern = _pattern(section, connector)
    format_ = section.choice("format", SOURCE_FORMATS, "json", " of records")
    if format_ != "avro":
        section.refuse_keys(("framing",), lambda key: f"'{key}' is for format avro")
    schema, schema_file = _record_schema(section, format_, folder)
    dead_letter, fail_above = _bad_records(section, topics[0] if topics else name, format_)
    source = TopicSource(
        name=name,
        place=section.place,
        topics=topics,
        pattern=pattern,
        format=format_,
        schema=schema,
        schema_file=schema_file,
        framing=section.choice("framing", _FRAMINGS, "confluent") if section.has("framing") else None,
        start=_start(section, topics),
        headers=section.flag("headers"),
        watermark=section.watermark(),
        deduplicate=section.texts("deduplicate"),
        dead_letter=dead_letter,
        fail_above=fail_above,
        tombstone=_tombstone(section, format_),
        max_per_trigger=section.count("max_per_trigger"),
        options=_topic_options(section, format_),
    )
    _refuse_reading_dead_letters(section, source)
    _check_watermark_column(section, source)
    _check_deduplicate(section)
    section.refuse_keys(("watch",), lambda key: f"'{key}' is for files: a topic is always a stream")
    section.finish(SYNONYMS)
    return source


def _topic_options(section: Section, format_: SourceFormat) -> Mapping[str, str]:
    options = read_options(section, TOPICS_READ)
    if "times" in options and (format_ != "debezium" or options["times"] not in TIME_UNITS):
        section.refuse(f"'times' is for format debezium: {' or '.join(TIME_UNITS)}", option_place(section, "times"))
    for name, key in OPTIONS_OF_KEYS.items():
        if name in options:
            place = option_place(section, name)
            section.refuse(f"the option '{name}' is given by the key '{key}': leave it out", place)
    return options


def _pattern(section: Section, connector: Connector) -> str | None:
    """Return the pattern. With Spark's own connector it is Java's, and Python cannot check it."""
    pattern = section.text("pattern")
    if pattern is not None and connector == "moldau":
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            section.refuse(f"not a regular expression: {printable(str(error))}", section.value_place("pattern"))
    return pattern


def _record_schema(section: Section, format_: SourceFormat, folder: Folder) -> tuple[str | None, Path | None]:
    if format_ == "avro":
        schema_file = read_path(section, "schema_file", folder)
        section.refuse_keys(("schema",), lambda key: "format avro takes its schema from 'schema_file'")
        check_avro_schema(section, schema_file, folder)
        return None, schema_file
    schema, schema_file = _schema(section, folder)
    if format_ in ("text", "raw"):
        section.refuse_keys(
            ("schema", "schema_file"), lambda key: f"'{key}' is not for format {format_}: its one column is 'value'"
        )
    elif not (section.has("schema") or section.has("schema_file")):
        hint = "such as  schema: id string not null, amount double, ts timestamp"
        section.refuse(f"format {format_} needs a schema", hint=hint)
    return schema, schema_file


def check_avro_schema(section: Section, schema_file: Path | None, folder: Folder) -> None:
    """Check the Avro schema of a source or sink. Whether the JSON is valid Avro is checked when the codec is made."""
    if not section.has("schema_file"):
        section.refuse("format avro needs 'schema_file', an Avro schema in JSON")
        return
    if schema_file is None or not folder.files_must_exist:
        return
    try:
        json.loads(schema_file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        section.refuse(f"the Avro schema cannot be read: {error}", section.value_place("schema_file"))


def _schema(section: Section, folder: Folder) -> tuple[str | None, Path | None]:
    schema = section.text("schema")
    schema_file = read_path(section, "schema_file", folder)
    if section.has("schema") and section.has("schema_file"):
        section.refuse("'schema' and 'schema_file' do not go together", section.key_place("schema_file"))
    return schema, schema_file


def _start(section: Section, topics: tuple[str, ...]) -> Start:
    node = section.node("start")
    if isinstance(node, MappingNode):
        return _start_offsets(section, node, topics)
    scalar = section.scalar("start", "earliest, latest, a time or offsets")
    if scalar is None or scalar.text == "earliest":
        return "earliest"
    if scalar.text == "latest":
        return "latest"
    start = parse_time(scalar.text)
    if start is None:
        suggestion = did_you_mean(scalar.text, ("earliest", "latest"))
        hint = "earliest, latest, a time such as 2026-01-31T08:00:00Z, or offsets such as {0: 12, 1: 40}"
        section.refuse(f"cannot start at {quoted(scalar.text)}{suggestion}", scalar.place, None if suggestion else hint)
        return "earliest"
    return start


def _start_offsets(section: Section, node: MappingNode, topics: tuple[str, ...]) -> Offsets:
    """Read {partition: offset} for a source with one topic, else {topic: {partition: offset}}."""
    if not any(isinstance(value, MappingNode) for value in node.values.values()):
        if len(topics) != 1:
            section.refuse(
                "with several topics or a pattern, offsets are given by topic: {topic: {partition: offset}}", node.place
            )
            return {}
        return {topics[0]: _partition_offsets(section, node)}
    offsets = {}
    for topic, inner in node.values.items():
        if topics and topic not in topics:
            section.refuse(f"it does not read {quoted(topic)}{did_you_mean(topic, topics)}", node.keys[topic])
        if isinstance(inner, MappingNode):
            offsets[topic] = _partition_offsets(section, inner)
        else:
            section.refuse("offsets are given as {partition: offset}", inner.place)
    return offsets


def _partition_offsets(section: Section, node: MappingNode) -> Mapping[int, int]:
    if not node.values:
        section.refuse("there are no offsets", node.place, "such as {0: 12, 1: 40}, or leave it out")
    offsets = {}
    for partition, value in node.values.items():
        if not re.fullmatch(r"\d{1,9}", partition):
            section.refuse(f"{quoted(partition)} is not a partition", node.keys[partition])
            continue
        offset = _offset(value.text) if isinstance(value, ScalarNode) else None
        if offset is None:
            section.refuse("an offset is a number, earliest or latest", value.place)
        else:
            offsets[int(partition)] = offset
    return offsets


def _offset(text: str) -> int | None:
    named = {"earliest": _EARLIEST, "latest": _LATEST, "-2": _EARLIEST, "-1": _LATEST}
    if text in named:
        return named[text]
    return int(text) if re.fullmatch(r"\d{1,18}", text) else None


def _bad_records(section: Section, input_name: str, format_: SourceFormat) -> tuple[str, float | None]:
    """Return `dead_letter` and `fail_above`. `input_name` is the first topic that is read, or with a pattern the
    source's name: the default dead-letter topic is named after it. Raw records are never bad: they have neither."""
    if format_ == "raw":
        section.refuse_keys(
            ("dead_letter", "fail_above"), lambda key: f"'{key}' is not for format raw: every record fits"
        )
        return FAIL, None
    dead_letter, fail_above = _dead_letter(section, input_name), _fail_above(section)
    if fail_above is not None and dead_letter == FAIL:
        section.refuse(f"'fail_above' does not go with 'dead_letter: {FAIL}'", section.key_place("fail_above"))
    return dead_letter, fail_above


def _tombstone(section: Section, format_: SourceFormat) -> Tombstone | None:
    if not section.has("tombstone"):
        return None
    tombstone = section.choice("tombstone", TOMBSTONES, "row")
    if tombstone == "bad" and format_ == "debezium":
        message = "a tombstone of Debezium's follows the deletion that it repeats"
        section.refuse(message, section.value_place("tombstone"), "drop, or row for a compacted topic")
    if tombstone == "bad" and format_ == "raw":
        place = section.value_place("tombstone")
        section.refuse("'tombstone: bad' is not for format raw: every record fits", place, "row or drop")
    return tombstone


def _dead_letter(section: Section, input_name: str) -> str:
    """Return the topic for bad records, FAIL or DROP."""
    value = section.scalar("dead_letter", "a topic, fail or drop")
    if value is not None:
        return value.text if value.text in (FAIL, DROP) else section.topic_name(value)
    default = f"{input_name}.dead"
    if not topic_name_problem(input_name) and topic_name_problem(default):
        section.refuse(
            f"the default dead-letter topic is not a valid topic name: {default}", hint="give it with 'dead_letter'"
        )
    return default


def _fail_above(section: Section) -> float | None:
    value = section.scalar("fail_above", "a percentage such as 10%")
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,4})?)\s*%", value.text)
    if match is None or float(match[1]) > 100:
        section.refuse(f"{quoted(value.text)} is not a percentage", value.place, "such as  fail_above: 10%")
        return None
    return float(match[1])


def _refuse_reading_dead_letters(section: Section, source: TopicSource) -> None:
    topic = source.dead_letter_topic
    if topic is not None and source.reads(topic):
        key = next(key for key in ("dead_letter", "topic", "topics", "pattern") if section.has(key))
        section.refuse(
            f"it would read its own dead letters from {quoted(topic)}",
            section.value_place(key),
            "name another topic with 'dead_letter', or use drop or fail",
        )


def _check_watermark_column(section: Section, source: TopicSource) -> None:
    """Refuse a column that the schema plainly lacks. Columns that begin with _ are those of the record."""
    columns = [column.name for column in ddl_columns(source.schema or "")]
    name = source.watermark.column if source.watermark else ""
    if not columns or not name or name.startswith("_") or name.casefold() in map(str.casefold, columns):
        return
    suggestion = did_you_mean(name, columns) or f"; there are {', '.join(columns)}"
    inner = section.section("watermark")
    assert inner is not None, "the column was read from it"
    section.refuse(f"there is no column {name}{suggestion}", inner.value_place("column"))


def _check_deduplicate(section: Section) -> None:
    if section.has("deduplicate") and not section.has("watermark"):
        hint = "such as  watermark: {column: ts, delay: 10 seconds}"
        section.refuse("'deduplicate' needs a watermark", section.key_place("deduplicate"), hint)


def _file_source(name: str, section: Section, folder: Folder) -> FileSource:
    written = section.text("file") or ""
    if problem := folder.files_problem(written):
        section.refuse(problem, section.value_place("file"))
    format_ = _file_format(section, written)
    schema, schema_file = _schema(section, folder)
    watch = section.flag("watch")
    _check_file_schema(section, format_, written, watch)
    if not watch:
        section.refuse_keys(
            ("watermark", "deduplicate"), lambda key: f"'{key}' is for streams: a file is one with  watch: true"
        )
    source = FileSource(
        name=name,
        place=section.place,
        path=folder.resolve(written),
        format=format_,
        schema=schema,
        schema_file=schema_file,
        watch=watch,
        watermark=section.watermark(),
        deduplicate=section.texts("deduplicate"),
        options=read_options(section, FILES),
    )
    if watch:
        _check_deduplicate(section)
    _refuse_topic_keys(section, "files")
    section.finish(SYNONYMS)
    return source


def _file_format(section: Section, written: str) -> FileFormat:
    from_suffix = _format_of(written)
    if from_suffix is None and written and not section.has("format"):
        section.refuse(f"missing key 'format': {quoted(written)} does not show it", section.value_place("file"))
    return section.choice("format", FILE_FORMATS, from_suffix or "text", " of files")


def _format_of(written: str) -> FileFormat | None:
    """Return the format that the name of the files shows, or None."""
    return _SUFFIXES.get(Path(written.rstrip("*")).suffix.lower())


def _check_file_schema(section: Section, format_: FileFormat, written: str, watch: bool) -> None:
    has_schema = section.has("schema") or section.has("schema_file")
    is_format_known = section.has("format") or _format_of(written) is not None
    if format_ == "text" and has_schema and is_format_known:
        section.refuse_keys(
            ("schema", "schema_file"), lambda key: f"'{key}' is not for format text: its one column is 'value'"
        )
    if watch and format_ != "text" and not has_schema:
        section.refuse("files that are watched need a schema", hint="such as  schema: id string, name string")


def _table_source(name: str, section: Section, folder: Folder) -> TableSource:
    written = section.text("table") or ""
    if problem := folder.table_problem(written):
        section.refuse(problem, section.value_place("table"))
    source = TableSource(
        name=name,
        place=section.place,
        path=folder.resolve(written),
        format=section.choice("format", TABLE_FORMATS, "parquet", " of tables"),
        options=section.mapping("options"),
    )
    section.refuse_keys(("schema", "schema_file"), lambda key: f"'{key}' is not for tables: a table has its own")
    section.refuse_keys(("watermark", "deduplicate"), lambda key: f"'{key}' is for streams: a table is not a stream")
    section.refuse_keys(("watch",), lambda key: f"'{key}' is for files")
    _refuse_topic_keys(section, "tables")
    section.finish(SYNONYMS)
    return source


def _refuse_topic_keys(section: Section, what: str) -> None:
    keys = ("framing", "start", "headers", "dead_letter", "fail_above", "tombstone", "max_per_trigger")
    section.refuse_keys(keys, lambda key: f"'{key}' is for topics, not for {what}")


def _backend_source(name: str, section: Section, folder: Folder) -> BackendSource:
    source = read_backend_source(name, section, folder)
    _check_deduplicate(section)
    keys = ("framing", "start", "headers", "dead_letter", "fail_above", "tombstone", "format", "options", "watch")
    section.refuse_keys(keys, lambda key: f"'{key}' is not for a class")
    section.finish(SYNONYMS)
    return source
