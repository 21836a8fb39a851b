"""A pipeline after its file was read: frozen values, and the place of each in the file.

The drawing, the SQL checker, the compiler and the runner use these. Values are complete (defaults filled in, variables
replaced, paths absolute), so nothing else reads the YAML. This module reads no file, checks nothing and needs no Spark.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from moldau.backends.catalog import secrets_of as backend_secrets
from moldau.backends.delivery import Delivery
from moldau.client.secret_properties import masked, secret_values
from moldau.databases.urls import BadUrl, parse_url
from moldau.databases.urls import secrets_of as url_secrets

RecordFormat = Literal["json", "csv", "avro", "text", "raw"]
SourceFormat = Literal["json", "csv", "avro", "text", "raw", "debezium"]
FileFormat = Literal["csv", "json", "parquet", "orc", "text"]
TableFormat = Literal["parquet", "delta", "iceberg"]
TopicMode = Literal["append", "update", "complete"]
TableMode = Literal["append", "upsert", "complete"]
DatabaseMode = Literal["append", "upsert", "history"]
Connector = Literal["moldau", "kafka"]
Tombstone = Literal["row", "bad", "drop"]
Truncation = Literal["fail", "skip", "row"]
Envelope = Literal["debezium"]

Offsets = Mapping[str, Mapping[int, int]]
"""Offset by topic and partition; -2 means earliest and -1 latest, as in Spark's JSON."""
Start = Literal["earliest", "latest"] | datetime | Offsets
"""Where a query starts reading a topic if it has no checkpoint. A datetime always has a time zone."""

REAL_TIME = "real-time "
"""A trigger that begins like this is Spark's real-time mode; the rest is how long a batch lasts, which then writes a
checkpoint."""
TIME_UNITS: Final = {"micros": 1_000_000, "millis": 1_000}
"""What a number in a time column counts, in format debezium (its option `times`), and how many of them are a second."""
DEFAULT_BOOTSTRAP = "localhost:9092"
FAIL = "fail"
DROP = "drop"
"""Values of `dead_letter` other than a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A position in a file: line and column count from 1, columns in characters, as in editors."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a text that is contiguous in the file: character `start` of the text is at (line, column).

    With `single_place`, all characters come from that position: an escape of a quoted text, the value of a variable.
    """

    start: int
    line: int
    column: int
    single_place: bool = False


@dataclass(frozen=True, slots=True)
class TextMap:
    """Maps a character of a text (an SQL statement, for example) to its place in the file, although indentation was
    removed, lines were folded, and escapes and variables were replaced."""

    file: str
    text: str
    segments: tuple[Segment, ...]

    def at(self, offset: int) -> Place:
        """Return the place of the character at `offset`; if the text is shorter, the place of its end."""
        offset = max(0, min(offset, len(self.text)))
        segment = self.segments[max(0, bisect_right(self.segments, offset, key=lambda segment: segment.start) - 1)]
        column = segment.column if segment.single_place else segment.column + offset - segment.start
        return Place(file=self.file, line=segment.line, column=column)

    def at_line(self, line: int, column: int) -> Place:
        """Return the place of (line, column) of the text, both from 1. Lines of the text end with a line feed."""
        offset = 0
        for _ in range(line - 1):
            end = self.text.find("\n", offset)
            if end < 0:
                return self.at(len(self.text))
            offset = end + 1
        return self.at(offset + column - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    column: str
    delay: str
    """In Spark's notation: "10 seconds"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Topics read as one stream. Either `topics` or `pattern` selects them."""

    name: str
    place: Place
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    format: SourceFormat = "json"
    schema: str | None = None
    """Spark's DDL. A record without a value for a NOT NULL column is a bad record."""
    schema_file: Path | None = None
    """A file with an Avro schema, or for json and csv with DDL. It replaces `schema`."""
    framing: Literal["confluent"] | None = None
    start: Start = "earliest"
    headers: bool = False
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    dead_letter: str
    """A topic, or FAIL or DROP."""
    fail_above: float | None = None
    """Percentage of bad records above which a run fails."""
    tombstone: Tombstone | None = None
    """What a null value is: a row of nulls, a bad record, or nothing. None: bad if a column is NOT NULL, else a row; in
    format debezium nothing, because the deletion stands before it."""
    max_per_trigger: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold passwords: kafka.sasl.jaas.config."""

    @property
    def dead_letter_topic(self) -> str | None:
        return None if self.dead_letter in (FAIL, DROP) else self.dead_letter

    def reads(self, topic: str) -> bool:
        """Return whether the source reads the topic. A pattern that is not valid matches none."""
        if self.pattern is None:
            return topic in self.topics
        try:
            return bool(re.fullmatch(self.pattern, topic))
        except (re.error, OverflowError, RecursionError):
            return False

    def is_on_cluster_of(self, sink: TopicSink) -> bool:
        """Return whether neither has a cluster of its own, or both the same: else a topic of one name is another."""
        return _own_bootstrap(self.options) == _own_bootstrap(sink.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files, read once as a table, or with `watch` as a stream to which new files add rows."""

    name: str
    place: Place
    path: str
    """Absolute; may be a glob."""
    format: FileFormat
    schema: str | None = None
    schema_file: Path | None = None
    watch: bool = False
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A lake table. Every batch reads it again."""

    name: str
    place: Place
    path: str
    format: TableFormat
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSource:
    """Rows that a class of a module beside the pipeline's file reads (`moldau.backends`), as a stream."""

    name: str
    place: Place
    backend: str
    """module:Class"""
    args: Mapping[str, object] = field(default_factory=dict, repr=False)
    schema: str | None = None
    schema_file: Path | None = None
    max_per_trigger: int | None = None
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()

    @property
    def user_class(self) -> tuple[str, str]:
        """The module and the name of the class."""
        module, _, name = self.backend.partition(":")
        return module, name

    @property
    def options(self) -> Mapping[str, str]:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSource:
    """The changes of a database's table as a stream, after the table as it is."""

    name: str
    place: Place
    url: str
    """Without the password."""
    table: str
    """With its schema: public.orders."""
    schema: str | None = None
    """Spark's DDL of the columns to read; None: all that the table has."""
    key: tuple[str, ...] = ()
    """The key's columns, where the database does not say them."""
    growing: str | None = None
    """The column whose growth shows the changes; None: they come from the database's log."""
    truncate: Truncation = "fail"
    publication: str | None = None
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    max_per_trigger: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The password, under names that say so: as it is, and as it is written in the URL."""
    staged: FileSource | None = None
    """In a test case, the files with its changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    name: str
    place: Place
    sql: str
    sql_place: Place
    """The place of the first character of the SQL. `Pipeline.place_in` returns that of any other character."""
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep:
    """Calls `function(*inputs: DataFrame, **args) -> DataFrame` of a module beside the pipeline's file."""

    name: str
    place: Place
    module: str
    function: str
    inputs: tuple[str, ...]
    args: Mapping[str, object] = field(default_factory=dict)
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Writes rows as records. Either `topic` is the target, or the SQL expression `route` computes it per row.

    key, value, route, partition and the values of headers are SQL expressions over the columns of `view`.
    """

    name: str
    place: Place
    view: str
    topic: str | None = None
    route: str | None = None
    key: str | None = None
    value: str | None = None
    format: RecordFormat = "json"
    envelope: Envelope | None = None
    """How a change of a database is written; None: the row after it, or a tombstone."""
    schema_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    mode: TopicMode = "append"
    partitions: int | None = None
    trigger: str | None = None
    """In Spark's notation ("5 seconds"); the pipeline's trigger if the sink has none of its own."""
    shares_query_of: str | None = None
    """`with` in the file: the sink above whose query also writes this sink."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold passwords: kafka.sasl.jaas.config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    name: str
    place: Place
    view: str
    path: str
    format: TableFormat
    partition_by: tuple[str, ...] = ()
    mode: TableMode = "append"
    keys: tuple[str, ...] = ()
    delete_when: str | None = None
    trigger: str | None = None
    shares_query_of: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSink:
    """Writes rows to a table of a database."""

    name: str
    place: Place
    view: str
    database: str = field(repr=False)
    """The URL, with the absolute path of a file; may hold a password."""
    table: str
    mode: DatabaseMode = "append"
    keys: tuple[str, ...] = ()
    delete_when: str | None = None
    trigger: str | None = None
    shares_query_of: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def address(self) -> str:
        """The database without user and password; only "database" if its URL comes from a variable without a value,
        as in commands that do not connect."""
        try:
            return parse_url(self.database).shown
        except BadUrl:
            return "database"

    @property
    def output(self) -> str:
        """The table and its database as a text that is the same for all ways to write them."""
        return f"{self.table} in {self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink:
    name: str
    place: Place
    view: str
    mode: TopicMode = "append"
    trigger: str | None = None
    shares_query_of: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSink:
    """Gives rows to a backend (`moldau.backends`): one by name, or a class of a module beside the pipeline's file.

    `key` and the values of `parts` and `headers` are SQL expressions over the columns of `view`.
    """

    name: str
    place: Place
    view: str
    backend: str
    """A name of `moldau.backends.catalog`, or module:Class."""
    url: str = field(default="", repr=False)
    key: str | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Arguments of the class."""
    delivery: Delivery
    dead_letter: str
    """A topic, or FAIL or DROP."""
    mode: TopicMode = "append"
    trigger: str | None = None
    shares_query_of: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def user_class(self) -> tuple[str, str] | None:
        """The module and the name of the user's class."""
        module, colon, name = self.backend.partition(":")
        return (module, name) if colon else None

    @property
    def dead_letter_topic(self) -> str | None:
        return None if self.dead_letter in (FAIL, DROP) else self.dead_letter


Source = TopicSource | FileSource | TableSource | DatabaseSource | BackendSource
Step = SqlStep | PythonStep
Rows = TopicSource | FileSource | DatabaseSource | BackendSource | Step
"""What may have a watermark: all views but those of tables."""
Sink = TopicSink | TableSink | DatabaseSink | ConsoleSink | BackendSink


def _own_bootstrap(options: Mapping[str, str]) -> str | None:
    return next((value for name, value in options.items() if name.lower() == "kafka.bootstrap.servers"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    file: Path
    """Absolute. Python steps are imported from its folder."""
    bootstrap: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client properties without the prefix: {"security.protocol": "PLAINTEXT"}. May hold passwords."""
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    trigger: str | None = None
    connector: Connector = "moldau"
    sources: Mapping[str, Source]
    steps: tuple[Step, ...] = ()
    sinks: tuple[Sink, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict, repr=False, compare=False)
    """The place of each value by its dotted path: "sources.events.schema", "steps.0.sql", "sinks.0.headers.type"; ""
    is the beginning of the file."""
    key_places: Mapping[str, Place] = field(default_factory=dict, repr=False, compare=False)
    """The place of each key by the same dotted path."""
    texts: Mapping[str, TextMap] = field(default_factory=dict, repr=False, compare=False)
    """For each text among these values, by the same dotted path, the map from its characters to the file."""

    def with_bootstrap(self, bootstrap: str | None) -> Pipeline:
        """Return the pipeline with `bootstrap` if given, else its own, else the default."""
        return replace(self, bootstrap=bootstrap or self.bootstrap or DEFAULT_BOOTSTRAP)

    def masked(self, text: str) -> str:
        """Return the text without the passwords and keys of the settings."""
        options = [each.options for each in (*self.sources.values(), *self.sinks)]
        backends = [each for each in self.sinks if isinstance(each, BackendSink)]
        secrets = [backend_secrets(each.url, each.options, each.args) for each in backends]
        read = [each for each in self.sources.values() if isinstance(each, BackendSource)]
        secrets += [backend_secrets("", {}, each.args) for each in read]
        secrets += [url_secrets(sink.database) for sink in self.sinks if isinstance(sink, DatabaseSink)]
        return masked(text, frozenset().union(*secrets, *map(secret_values, (self.kafka, self.spark, *options))))

    def place_of(self, path: str) -> Place:
        """Return where the value at a dotted path begins. For a default, which the file does not contain, return the
        place of the mapping around it."""
        while path:
            if path in self.places:
                return self.places[path]
            path = path.rpartition(".")[0]
        return self.places.get("", Place(file=str(self.file), line=1, column=1))

    def place_in(self, path: str, line: int, column: int) -> Place:
        """Return the place of the character at (line, column), both from 1, of the text at a dotted path."""
        text = self.texts.get(path)
        return text.at_line(line, column) if text else self.place_of(path)
