"""The `sinks` of a pipeline file: topics (fixed, or computed per row), lake tables, tables of databases, the console.

This module decides which keys a sink has, which of them go together, and its default name.
Spark checks later whether its expressions compile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Final, get_args

from moldau.backends import catalog
from moldau.base.limits import INT32_MAX
from moldau.base.topic_names import INTERNAL_TOPICS, METADATA_TOPIC
from moldau.databases.sql import table_name
from moldau.databases.urls import BadUrl, parse_url
from moldau.pipelines.locations import local_table
from moldau.pipelines.problems import did_you_mean, quoted
from moldau.pipelines.reading import backends
from moldau.pipelines.reading.connection import UNKNOWN
from moldau.pipelines.reading.option_names import CONSOLE, DATABASES, TABLES, TOPICS_WRITTEN, option_place, read_options
from moldau.pipelines.reading.paths import Folder, read_path
from moldau.pipelines.reading.sections import Section
from moldau.pipelines.reading.sources import RECORD_FORMATS, TABLE_FORMATS, check_avro_schema
from moldau.pipelines.reading.yaml_tree import ScalarNode
from moldau.pipelines.spec import (
    BackendSink,
    ConsoleSink,
    DatabaseMode,
    DatabaseSink,
    Envelope,
    Sink,
    TableMode,
    TableSink,
    TopicMode,
    TopicSink,
)

KINDS: Final = ("topic", "route", "table", "database", "console", "backend")
TOPIC_KEYS: Final = ("key", "value", "headers", "partition", "partitions", "schema_file")
TABLE_KEYS: Final = ("partition_by", "keys", "delete_when")
OTHER_KEYS: Final = (
    "name", "from", "with", "mode", "trigger", "options", "format", *TOPIC_KEYS, *TABLE_KEYS, *backends.KEYS,
)  # fmt: skip
NOT_OF_BACKENDS: Final = ("value", "partition", "partitions", "schema_file", "format", *TABLE_KEYS)
DEBEZIUM: Final = "debezium"
SYNONYMS: Final = {"path": "table", "view": "from", "input": "from", "topics": "topic", "output_mode": "mode",
                   "partitionBy": "partition_by", "primary_key": "keys"}  # fmt: skip
_STREAM_MODES: Final[tuple[TopicMode, ...]] = get_args(TopicMode)
_TABLE_MODES: Final[tuple[TableMode, ...]] = get_args(TableMode)
_DATABASE_MODES: Final[tuple[DatabaseMode, ...]] = get_args(DatabaseMode)
SAME_STORES: Final = {"s3a": "s3", "s3n": "s3"}
"""Schemes of Hadoop that are other names of the same store."""
SINK_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Few characters, because the paths of checkpoints contain the names of sinks."""


def check_sharing(section: Section, sink: Sink, above: Collection[Sink]) -> None:
    """Check the key `with` (`sink.shares_query_of`), the name of the sink whose query this one shares. The query
    computes each batch once for all its sinks, so they need the same view, mode and trigger."""
    if sink.shares_query_of is None:
        return
    place, shared_name = section.value_place("with"), sink.shares_query_of
    first = next((one for one in above if one.name == shared_name), None)
    if first is None:
        suggestion = did_you_mean(shared_name, [one.name for one in above])
        section.refuse(f"there is no sink {quoted(shared_name)} above it{suggestion}", place)
        return
    if first.shares_query_of is not None:
        hint = f"write  with: {first.shares_query_of}"
        section.refuse(f"{quoted(first.name)} itself shares the query of {quoted(first.shares_query_of)}", place, hint)
    elif first.view.lower() != sink.view.lower():
        section.refuse(f"{quoted(first.name)} is made from {quoted(first.view)}, so they cannot share a query", place)
    elif not first.mode == sink.mode == "append":
        section.refuse("only sinks in mode append can share a query", place)
    section.refuse_keys(("trigger",), lambda key: f"put the '{key}' on {quoted(shared_name)}, whose query it shares")


def check_table(section: Section, sink: Sink, above: Collection[Sink]) -> None:
    """Check that no other sink writes the table of a sink that changes or replaces rows: such a sink would change the
    other's rows."""
    if not isinstance(sink, TableSink | DatabaseSink):
        return
    for other in above:
        if not isinstance(other, TableSink | DatabaseSink) or _table_key(sink) != _table_key(other):
            continue
        if not sink.mode == other.mode == "append":
            section.refuse(
                f"it writes to the table of sink {quoted(other.name)}: only sinks in mode append can share a table"
                f" (the modes are {other.mode} and {sink.mode})",
                section.value_place("table"),
            )
            return


def _table_key(sink: TableSink | DatabaseSink) -> str:
    """Return a text that is the same for all ways to write the path of one table."""
    if isinstance(sink, DatabaseSink):
        return sink.output
    path = local_table(sink.path)
    if path is not None:
        return os.path.normpath(path)
    scheme, _, path = sink.path.partition(":")
    return f"{SAME_STORES.get(scheme.lower(), scheme.lower())}:{os.path.normpath(path)}"


def read_sink(section: Section, folder: Folder, trigger: str | None) -> Sink | None:
    """Read one sink. `trigger` is the pipeline's, for sinks without their own. Return None if its kind is unclear."""
    view = section.required_text("from")
    is_database = section.has("database")
    kind = "database" if is_database else section.only_one_of(KINDS, "where does it write to?", OTHER_KEYS, SYNONYMS)
    if kind is None:
        return None
    if kind in ("topic", "route"):
        sink: Sink = _topic_sink(section, view, folder, trigger)
    elif kind == "table":
        sink = _table_sink(section, view, folder, trigger)
    elif kind == "backend":
        sink = _backend_sink(section, view, folder, trigger)
    elif kind == "database":
        sink = _database_sink(section, view, folder, trigger)
    else:
        sink = _console_sink(section, view, trigger)
    section.finish(SYNONYMS)
    return sink


def _name(section: Section, view: str, target: str) -> str:
    """Return the name of the sink: the one in the file, or <from>-to-<target>."""
    written = section.text("name")
    if written is not None:
        if not SINK_NAME.fullmatch(written):
            message = f"{quoted(written)} cannot be a sink's name: use letters, digits, '.', '_' and '-'"
            section.refuse(message, section.value_place("name"))
        return written
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{view}-to-{target}")[:100]


def _trigger(section: Section, default: str | None) -> str | None:
    return section.trigger() if section.has("trigger") else default


def _topic_sink(section: Section, view: str, folder: Folder, trigger: str | None) -> TopicSink:
    topic, route = section.topic("topic"), section.text("route")
    if topic is not None and (topic in INTERNAL_TOPICS or topic == METADATA_TOPIC):
        section.refuse(f"{quoted(topic)} belongs to the cluster", section.value_place("topic"))
    envelope: Envelope | None = _debezium(section)
    format_ = "json" if envelope else section.choice("format", RECORD_FORMATS, "json", " of records")
    schema_file = read_path(section, "schema_file", folder)
    if format_ == "avro":
        check_avro_schema(section, schema_file, folder)
        section.refuse_keys(
            ("value",), lambda key: "'value' does not go with format avro, which makes the value itself"
        )
    else:
        section.refuse_keys(("schema_file",), lambda key: f"'{key}' is for format avro")
    section.refuse_keys(TABLE_KEYS, lambda key: f"'{key}' is for tables, not for topics")
    if route is not None:
        section.refuse_keys(
            ("partitions",), lambda key: "'partitions' goes with 'topic': route creates a topic with its first record"
        )
    return TopicSink(
        name=_name(section, view, topic or "topics"),
        place=section.place,
        view=view,
        topic=topic,
        route=route,
        key=section.text("key"),
        value=section.text("value"),
        format=format_,
        envelope=envelope,
        schema_file=schema_file,
        headers=section.mapping("headers"),
        partition=section.text("partition"),
        mode=section.choice("mode", _STREAM_MODES, "append", " of a topic"),
        partitions=section.count("partitions", most=INT32_MAX),
        trigger=_trigger(section, trigger),
        shares_query_of=section.text("with"),
        options=_topic_options(section),
    )


def _debezium(section: Section) -> Envelope | None:
    """Return the envelope if the format is one: it makes the value itself."""
    node = section.entries.values.get("format")
    if not isinstance(node, ScalarNode) or node.text != DEBEZIUM:
        return None
    section.known_keys.add("format")
    section.refuse_keys(("value",), lambda key: f"'value' does not go with format {DEBEZIUM}, which makes it")
    if section.has("mode") and section.text("mode") != "append":
        section.refuse(f"format {DEBEZIUM} goes with mode append", section.value_place("mode"))
    return DEBEZIUM


def _topic_options(section: Section) -> Mapping[str, str]:
    options = read_options(section, TOPICS_WRITTEN)
    if "topic" in options:
        given = (
            "would replace the topics that 'route' chooses" if section.has("route") else "is given by the key 'topic'"
        )
        section.refuse(f"the option 'topic' {given}: leave it out", option_place(section, "topic"))
    return options


def _table_sink(section: Section, view: str, folder: Folder, trigger: str | None) -> TableSink:
    written = section.text("table") or ""
    format_ = section.choice("format", TABLE_FORMATS, "parquet", " of tables")
    mode = section.choice("mode", _TABLE_MODES, "append", " of a table")
    section.refuse_keys(TOPIC_KEYS, lambda key: f"'{key}' is for topics, not for tables")
    sink = TableSink(
        name=_name(section, view, PurePath(written).name or "table"),
        place=section.place,
        view=view,
        path=folder.resolve(written),
        format=format_,
        partition_by=section.texts("partition_by"),
        mode=mode,
        keys=section.texts("keys"),
        delete_when=section.text("delete_when"),
        trigger=_trigger(section, trigger),
        shares_query_of=section.text("with"),
        options=read_options(section, TABLES),
    )
    if mode == "upsert":
        _check_upsert(section, sink)
    else:
        section.refuse_keys(("keys", "delete_when"), lambda key: f"'{key}' is for 'mode: upsert'")
    return sink


def _check_upsert(section: Section, sink: TableSink) -> None:
    place = section.value_place("mode")
    if sink.format != "delta":
        section.refuse(
            "mode upsert needs 'format: delta'", section.value_place("format") if section.has("format") else place
        )
    if not section.has("keys"):
        section.refuse("mode upsert needs 'keys', the columns that identify a row", place)


def _database_sink(section: Section, view: str, folder: Folder, trigger: str | None) -> DatabaseSink:
    table = section.required_text("table")
    mode = section.choice("mode", _DATABASE_MODES, "append", " of a database's table")
    refused = (*TOPIC_KEYS, "topic", "route", "console", "format", "partition_by")
    section.refuse_keys(refused, lambda key: f"'{key}' does not go with 'database'")
    try:
        if table:
            table_name(table)
    except ValueError as error:
        section.refuse(str(error), section.value_place("table"))
    sink = DatabaseSink(
        name=_name(section, view, table.rpartition(".")[2] or "table"),
        place=section.place,
        view=view,
        database=_database_url(section, folder),
        table=table,
        mode=mode,
        keys=section.texts("keys"),
        delete_when=section.text("delete_when"),
        trigger=_trigger(section, trigger),
        shares_query_of=section.text("with"),
        options=read_options(section, DATABASES),
    )
    _check_database_mode(section, sink)
    return sink


def _database_url(section: Section, folder: Folder) -> str:
    """Return the URL, with an absolute path if the database is a file."""
    written = section.text("database") or ""
    if not written or written == UNKNOWN:
        return written
    try:
        url = parse_url(written)
    except BadUrl as error:
        section.refuse(f"the URL of the database cannot be used: {error}", section.value_place("database"))
        return written
    return url.at(folder.resolve(url.path)).text if url.is_file else url.text


def _check_database_mode(section: Section, sink: DatabaseSink) -> None:
    if sink.mode == "append":
        section.refuse_keys(("keys", "delete_when"), lambda key: f"'{key}' is for 'mode: upsert' and 'mode: history'")
        return
    place = section.value_place("mode")
    if not section.has("keys"):
        section.refuse(f"mode {sink.mode} needs 'keys', the columns that identify a row", place)
    if sink.mode == "history" and "order_by" not in sink.options:
        hint = "such as  options: {order_by: updated_at}"
        section.refuse("mode history needs the option 'order_by': when each version of a row began", place, hint)


def _console_sink(section: Section, view: str, trigger: str | None) -> ConsoleSink:
    if not section.flag("console", default=True):
        section.refuse("'console' can only be true: leave the sink out instead", section.value_place("console"))
    section.refuse_keys((*TOPIC_KEYS, *TABLE_KEYS, "format"), lambda key: f"'{key}' is not for the console")
    return ConsoleSink(
        name=_name(section, view, "console"),
        place=section.place,
        view=view,
        mode=section.choice("mode", _STREAM_MODES, "append", " of the console"),
        trigger=_trigger(section, trigger),
        shares_query_of=section.text("with"),
        options=read_options(section, CONSOLE),
    )


def _backend_sink(section: Section, view: str, folder: Folder, trigger: str | None) -> BackendSink:
    name = _name(section, view, backends.target_name(section))
    sink = backends.read_backend(section, name, view, folder, _trigger(section, trigger))
    kind = catalog.KINDS.get(sink.backend)
    refused = (key for key in NOT_OF_BACKENDS if kind is None or key not in kind.parts)
    section.refuse_keys(refused, lambda key: f"'{key}' is not for backends")
    return sink
