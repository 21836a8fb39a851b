"""The graph of a pipeline: its sources, steps and sinks are nodes, and so are the topics of its dead letters.

    drawn = graph(pipeline)
    drawn.nodes -> (Node(id="source.events", kind=NodeKind.TOPIC, title="events", lines=("topic events", …)), …)

The order of nodes is such that every edge goes forward. The drawings decide how the graph looks; no file is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath

from moldau.pipelines.spec import (
    BackendSink,
    BackendSource,
    ConsoleSink,
    DatabaseSink,
    DatabaseSource,
    Pipeline,
    Rows,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)
from moldau.pipelines.sql_names import views_used


class NodeKind(Enum):
    TOPIC = "topic"
    TABLE = "table"
    """Files and lake tables that are read."""
    SQL = "sql"
    PYTHON = "python"
    SINK = "sink"
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    kind: NodeKind
    title: str
    lines: tuple[str, ...] = ()
    """Further text about it, most important first."""


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Graph:
    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph(pipeline: Pipeline) -> Graph:
    folder = pipeline.file.parent
    dead = {
        source.name: source.dead_letter_topic
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource) and source.dead_letter_topic
    }
    nodes = [
        *(_source(source, folder) for source in pipeline.sources.values()),
        *(
            Node(f"dead.{topic}", NodeKind.DEAD_LETTERS, topic, ("bad records",))
            for topic in dict.fromkeys(dead.values())
        ),
        *(_step(step) for step in pipeline.steps),
        *(_sink(sink, folder) for sink in pipeline.sinks),
    ]
    edges = [
        *(Edge(f"source.{name}", f"dead.{topic}") for name, topic in dead.items()),
        *_view_edges(pipeline),
    ]
    return Graph(pipeline.name, tuple(nodes), tuple(edges))


def _view_edges(pipeline: Pipeline) -> Iterator[Edge]:
    """Yield edges from each view to the steps and sinks that read it. A step can use sources and steps above it."""
    ids = {name: f"source.{name}" for name in pipeline.sources}
    for step in pipeline.steps:
        names = [use.view for use in views_used(step.sql, ids)] if isinstance(step, SqlStep) else step.inputs
        yield from (Edge(ids[name], f"step.{step.name}") for name in dict.fromkeys(names) if name in ids)
        ids[step.name] = f"step.{step.name}"
    for sink in pipeline.sinks:
        yield Edge(ids[sink.view], f"sink.{sink.name}")


def _source(source: Source, folder: Path) -> Node:
    node = f"source.{source.name}"
    if isinstance(source, TopicSource):
        topics = f"pattern {source.pattern}" if source.pattern else _name_list("topic", source.topics)
        return Node(node, NodeKind.TOPIC, source.name, (topics, _join(source.format, *_stream_parts(source))))
    if isinstance(source, DatabaseSource):
        table = f"table {source.table.removeprefix('public.')}"
        return Node(node, NodeKind.TABLE, source.name, (table, _join("changes", *_stream_parts(source))))
    if isinstance(source, TableSource):
        return Node(node, NodeKind.TABLE, source.name, (f"table {_short_path(source.path, folder)}", source.format))
    if isinstance(source, BackendSource):
        return Node(node, NodeKind.TABLE, source.name, (f"class {source.backend}", _join(*_stream_parts(source))))
    watched = "watched" if source.watch else ""
    return Node(
        node,
        NodeKind.TABLE,
        source.name,
        (f"file {_short_path(source.path, folder)}", _join(source.format, watched, *_stream_parts(source))),
    )


def _stream_parts(part: Rows) -> Iterator[str]:
    if part.watermark:
        yield f"watermark {part.watermark.delay}"
    if part.deduplicate:
        yield "deduplicated"


def _step(step: Step) -> Node:
    extra = _join(*_stream_parts(step))
    if isinstance(step, SqlStep):
        return Node(f"step.{step.name}", NodeKind.SQL, step.name, tuple(filter(None, ("SQL", extra))))
    function = f"{step.module}:{step.function}"
    return Node(f"step.{step.name}", NodeKind.PYTHON, step.name, tuple(filter(None, (f"Python {function}", extra))))


def _sink(sink: Sink, folder: Path) -> Node:
    node = f"sink.{sink.name}"
    if isinstance(sink, ConsoleSink):
        return Node(node, NodeKind.SINK, "console", (sink.mode,))
    if isinstance(sink, TableSink):
        by = f"by {', '.join(sink.partition_by)}" if sink.partition_by else ""
        return Node(node, NodeKind.SINK, _short_path(sink.path, folder), (f"{sink.format} table", _join(sink.mode, by)))
    if isinstance(sink, BackendSink):
        return Node(node, NodeKind.SINK, sink.backend, ("backend", sink.mode))
    if isinstance(sink, DatabaseSink):
        keys = f"keys {', '.join(sink.keys)}" if sink.keys else ""
        return Node(node, NodeKind.SINK, sink.table, (_short_address(sink.address, folder), _join(sink.mode, keys)))
    title = sink.topic or "topic by content"
    key = f"key {sink.key}" if sink.key else ""
    first = "topic" if sink.topic else f"{sink.route}"
    return Node(node, NodeKind.SINK, title, (first, _join(_format(sink), sink.mode, key)))


def _short_address(address: str, folder: Path) -> str:
    """Return a database's address, with a short path if it is a file."""
    kind, separator, path = address.partition(":///")
    return f"{kind} {_short_path(path, folder)}" if separator else address


def _format(sink: TopicSink) -> str:
    return "" if sink.value else sink.envelope or sink.format


def _join(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _name_list(what: str, names: tuple[str, ...]) -> str:
    return f"{what} {names[0]}" if len(names) == 1 else f"{what}s {', '.join(names)}"


def _short_path(path: str, folder: Path) -> str:
    """Return a short path: relative to the pipeline's folder if it is inside, else its last two parts."""
    pure = PurePath(path)
    if pure.is_relative_to(folder):
        return pure.relative_to(folder).as_posix()
    return "/".join(pure.parts[-2:]) if len(pure.parts) > 2 else path
