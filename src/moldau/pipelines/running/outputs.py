"""The topics and tables that queries write. A query that restarts from scratch would append everything twice, and would
leave rows in an upserted table that it no longer makes: fresh_start.py clears them before. identity.py records them, to
recognize a renamed sink or pipeline."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from moldau.pipelines.locations import is_url, local_table
from moldau.pipelines.queries import DEAD_LETTERS
from moldau.pipelines.spec import BackendSink, DatabaseSink, Pipeline, TableSink, TopicSink, TopicSource

TOPIC: Final = "topic"
TABLE: Final = "table"
ROUTE: Final = "route"
DATABASE: Final = "database"


def appended_by(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """Return the kind and name of the output, by sink or dead-letter query. A route stands for topics that are chosen
    record by record. Consoles, and tables that are written by key or as a whole, are left out: nothing is doubled."""
    written = {}
    for sink in pipeline.sinks:
        if isinstance(sink, TopicSink):
            written[sink.name] = (TOPIC, sink.topic) if sink.topic else (ROUTE, sink.name)
        elif isinstance(sink, TableSink) and sink.mode == "append":
            written[sink.name] = (TABLE, _table_name(sink))
        elif isinstance(sink, DatabaseSink) and sink.mode == "append":
            written[sink.name] = (DATABASE, sink.output)
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource) and source.dead_letter_topic is not None:
            written[f"{source.name}{DEAD_LETTERS}"] = (TOPIC, source.dead_letter_topic)
    return written


def upserted_by(pipeline: Pipeline) -> dict[str, str]:
    """Return the table of each upsert sink. Nothing in it is doubled, but rows stay that no new row replaces."""
    upserts = [sink for sink in pipeline.sinks if isinstance(sink, TableSink) and sink.mode == "upsert"]
    return {sink.name: _table_name(sink) for sink in upserts}


def merged_by(pipeline: Pipeline) -> dict[str, str]:
    """Return the database's table of each sink that writes by key. As in an upserted table, rows stay."""
    return {
        sink.name: sink.output for sink in pipeline.sinks if isinstance(sink, DatabaseSink) and sink.mode != "append"
    }


def _table_name(sink: TableSink) -> str:
    """Return the path of a table on this machine, however it is written, and else its URL."""
    local = local_table(sink.path)
    return sink.path if local is None else os.path.normpath(local)


def outputs_of(pipeline: Pipeline, sinks: Collection[str]) -> list[str]:
    """Return the outputs as texts for identity.json. Paths are relative to the pipeline's folder, which may move."""
    outputs = []
    for name, (kind, target) in appended_by(pipeline).items():
        if name in sinks and kind != ROUTE:
            if kind == DATABASE:
                outputs.append(f"table {target}")
                continue
            is_local = kind == TABLE and not is_url(target)
            outputs.append(f"{kind} {os.path.relpath(target, pipeline.file.parent) if is_local else target}")
    backends = (sink for sink in pipeline.sinks if isinstance(sink, BackendSink) and sink.name in sinks)
    return outputs + [f"backend {sink.backend} {host_of(sink.url)}".rstrip() for sink in backends]


def host_of(url: str) -> str:
    """Return the scheme, host and port of a URL: the rest may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""
