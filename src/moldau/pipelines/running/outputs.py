"""What the queries of a pipeline append to: begun anew, or under another name, they would write everything twice."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from moldau.pipelines.queries import DEAD_LETTERS
from moldau.pipelines.spec import Pipeline, TableSink, TopicSink, TopicSource

TOPIC: Final = "topic"
TABLE: Final = "table"
ROUTE: Final = "route"


def written_by(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """By sink, or query of dead letters: the kind of output and its name. A route stands for topics that records
    decide; consoles forget, and tables that are written by key or as a whole hold nothing twice."""
    written = {}
    for sink in pipeline.sinks:
        if isinstance(sink, TopicSink):
            written[sink.name] = (TOPIC, sink.topic) if sink.topic else (ROUTE, sink.name)
        elif isinstance(sink, TableSink) and sink.mode == "append":
            written[sink.name] = (TABLE, sink.path)
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource) and source.dead_letter_topic is not None:
            written[f"{source.name}{DEAD_LETTERS}"] = (TOPIC, source.dead_letter_topic)
    return written


def outputs_of(pipeline: Pipeline, sinks: Collection[str]) -> list[str]:
    """The same in words that can be kept: paths are told from the pipeline's folder, which may be moved as a whole."""
    told = []
    for name, (kind, where) in written_by(pipeline).items():
        if name in sinks and kind != ROUTE:
            is_here = kind == TABLE and "://" not in where
            told.append(f"{kind} {os.path.relpath(where, pipeline.file.parent) if is_here else where}")
    return told
