"""What a pipeline is, once its file has been read: frozen values, and where in the file each of them stood.

Everyone else reads these: the drawing, the SQL checker, the compiler, the runner. Values are complete (defaults filled
in, variables replaced, paths absolute), so nobody looks at YAML again. No reading, no checking, no Spark in here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

RecordFormat = Literal["json", "csv", "avro", "text", "raw"]
FileFormat = Literal["csv", "json", "parquet", "orc", "text"]
TableFormat = Literal["parquet", "delta", "iceberg"]
TopicMode = Literal["append", "update", "complete"]
TableMode = Literal["append", "upsert", "complete"]
Connector = Literal["moldau", "kafka"]

Offsets = Mapping[str, Mapping[int, int]]
"""Topic, partition, offset; -2 stands for earliest and -1 for latest, as in Spark's JSON."""
Start = Literal["earliest", "latest"] | datetime | Offsets
"""Where a topic is begun without a checkpoint. A datetime always has a time zone."""

DEFAULT_BOOTSTRAP = "localhost:9092"
FAIL = "fail"
DROP = "drop"
"""What `dead_letter` may say in place of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a word stands: line and column count from 1, columns in characters, as editors do."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of a text that stands unbroken in the file: character `start` of the text stands at (line, column).

    In a frozen run all characters come from that one spot: an escape of a quoted text, the value of a variable.
    """

    start: int
    line: int
    column: int
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class TextMap:
    """The way back from a character of a text (an SQL statement, say) to the file, whatever YAML did in between:
    indentation taken off, lines folded, escapes and variables replaced."""

    file: str
    text: str
    runs: tuple[Run, ...]

    def at(self, offset: int) -> Place:
        """The place of the character at `offset`; of the last one if the text is shorter."""
        offset = max(0, min(offset, len(self.text)))
        run = self.runs[max(0, bisect_right(self.runs, offset, key=lambda run: run.start) - 1)]
        column = run.column if run.frozen else run.column + offset - run.start
        return Place(file=self.file, line=run.line, column=column)

    def at_line(self, line: int, column: int) -> Place:
        """The place of (line, column) inside the text, both from 1. Lines of the text end with a line feed."""
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
    """As Spark reads it: "10 seconds"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Topics read as one stream: either `topics` or `pattern` says which."""

    name: str
    place: Place
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    format: RecordFormat = "json"
    schema: str | None = None
    """Spark's DDL; NOT NULL means that a record without it is a bad record."""
    schema_file: Path | None = None
    """An Avro schema, or for json and csv a file with DDL. Given instead of `schema`."""
    framing: Literal["confluent"] | None = None
    start: Start = "earliest"
    headers: bool = False
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    dead_letter: str
    """A topic, or FAIL or DROP."""
    fail_above: float | None = None
    """Percent of the records: a run that finds more of them bad fails."""
    max_per_trigger: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def streaming(self) -> bool:
        return True

    @property
    def dead_letter_topic(self) -> str | None:
        return None if self.dead_letter in (FAIL, DROP) else self.dead_letter


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files, read once as a table, or with `watch` as a stream of the files that appear."""

    name: str
    place: Place
    path: str
    """Absolute; may hold a glob."""
    format: FileFormat
    schema: str | None = None
    schema_file: Path | None = None
    watch: bool = False
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def streaming(self) -> bool:
        return self.watch


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A lake table, read anew by every batch."""

    name: str
    place: Place
    path: str
    format: TableFormat
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def streaming(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    name: str
    place: Place
    sql: str
    sql_place: Place
    """The first character of the SQL. For any other character ask `Pipeline.place_in`."""
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep:
    """`function(*inputs: DataFrame, **args) -> DataFrame` of a module beside the pipeline's file."""

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
    """Rows become records. Either `topic` names the target, or the SQL expression `route` computes it per row.

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
    schema_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    mode: TopicMode = "append"
    partitions: int | None = None
    trigger: str | None = None
    """As Spark reads it ("5 seconds"); the pipeline's trigger if the sink has none of its own."""
    shares: str | None = None
    """`with` in the file: the sink above whose query this one takes part in."""
    options: Mapping[str, str] = field(default_factory=dict)


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
    shares: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink:
    name: str
    place: Place
    view: str
    mode: TopicMode = "append"
    trigger: str | None = None
    shares: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


Source = TopicSource | FileSource | TableSource
Step = SqlStep | PythonStep
Sink = TopicSink | TableSink | ConsoleSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    file: Path
    """Absolute. Python steps are imported from its folder."""
    bootstrap: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client properties without the prefix: {"security.protocol": "PLAINTEXT"}. May hold passwords."""
    spark: Mapping[str, str] = field(default_factory=dict)
    trigger: str | None = None
    connector: Connector = "moldau"
    sources: Mapping[str, Source]
    steps: tuple[Step, ...] = ()
    sinks: tuple[Sink, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict, repr=False, compare=False)
    """Where each value stands, by dotted path: "sources.events.schema", "steps.0.sql", "sinks.0.headers.type"; the
    file's beginning is ""."""
    texts: Mapping[str, TextMap] = field(default_factory=dict, repr=False, compare=False)
    """For each text among them, the way from its characters back to the file."""

    def at(self, bootstrap: str | None) -> Pipeline:
        """At this cluster, or where it says itself, or at a broker with the default address."""
        return replace(self, bootstrap=bootstrap or self.bootstrap or DEFAULT_BOOTSTRAP)

    def place_of(self, path: str) -> Place:
        """Where the value at a dotted path begins; of what holds it, if it was not written (a default)."""
        while path:
            if path in self.places:
                return self.places[path]
            path = path.rpartition(".")[0]
        return self.places.get("", Place(file=str(self.file), line=1, column=1))

    def place_in(self, path: str, line: int, column: int) -> Place:
        """Where the character at (line, column) of the text at a dotted path stands in the file; both from 1."""
        text = self.texts.get(path)
        return text.at_line(line, column) if text else self.place_of(path)
