"""Refuses to resume a query from a checkpoint that another query, or the same query with another plan, wrote.

    identity.json = {"pipeline": name, "id": random hex, "queries": {query: {"id": Spark's query id or null,
                     "sources": {name: [what is read]}, "steps": {name: digest of its text}, "mode": output mode,
                     "code": {Python step: digest of its modules}, "writes": [what is appended to],
                     "mentions": {name of a stream: in how many places it is read}}}}

Spark itself does not check this: with other sources it reads other topics from the offsets of the old ones, with
another aggregation it fails deep in its state store or, worse, does not. A renamed sink has no checkpoint and writes
everything again. So the identity of each query is written before its first batch, and compared before the next run.
This module does not use Spark.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from moldau.pipelines.database_changes import address_of
from moldau.pipelines.locations import is_url
from moldau.pipelines.queries import DEAD_LETTERS, sinks_by_query, sinks_of
from moldau.pipelines.running.outputs import outputs_of
from moldau.pipelines.running.python_code import code_digest, is_same_code
from moldau.pipelines.running.state_directory import StateDirectory, StateRefused, read_json, write_json
from moldau.pipelines.spec import (
    BackendSource,
    DatabaseSource,
    FileSource,
    Pipeline,
    PythonStep,
    Source,
    SqlStep,
    Step,
    TableSource,
    TopicSource,
)
from moldau.pipelines.sql_names import mentions, words

IDENTITY: Final = "identity.json"
_LITERAL_OR_COMMENT: Final = re.compile(r"""['"`]|--|/\*""")
_BETWEEN_WORDS: Final = "\0"
_BEFORE_URL: Final = re.compile(r"^files (?:.*?/)?(?=[A-Za-z][\w+.-]+:/)")


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """The parts of a query on which its checkpoint depends."""

    sources: Mapping[str, Sequence[str]]
    """The topics, patterns and files that it reads, by stream."""
    steps: Mapping[str, str] = field(default_factory=dict)
    """Digests of the texts of its steps."""
    mode: str = "append"
    code: Mapping[str, str] = field(default_factory=dict)
    """Digests of the modules of its Python steps."""
    writes: Sequence[str] = ()
    """The topics and tables that it appends to."""
    id: str | None = None
    """Spark's query id, known after the first start."""
    mentions: Mapping[str, int] = field(default_factory=dict)
    """In how many places each stream is read: Spark keeps an offset for each of them."""


class WrongCheckpoint(StateRefused):
    """A checkpoint that this query must not resume from."""


def digest(text: str) -> str:
    """Return a digest of a step's text that ignores white space: a re-indented query is the same query.

    White space matters in literals, and the end of a line after a comment. So a text with such marks also has a digest
    of its words: `<digest>-<digest of its words>`. Older versions recorded only the first.
    """
    whole = _short_hash(" ".join(text.split()))
    return f"{whole}-{_short_hash(_BETWEEN_WORDS.join(words(text)))}" if _LITERAL_OR_COMMENT.search(text) else whole


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_same_step(recorded: str | None, now: str | None) -> bool:
    is_of_older_version = recorded is not None and "-" not in recorded
    return recorded == now or (is_of_older_version and now is not None and now.partition("-")[0] == recorded)


def of_pipeline(pipeline: Pipeline, each_sink_alone: bool = False) -> dict[str, QueryIdentity]:
    """Return all queries of the pipeline by name: one per sink, and one per source with a dead-letter topic. Sinks that
    share a query have one together, unless `each_sink_alone`."""
    views = {view.name.casefold(): view for view in (*pipeline.sources.values(), *pipeline.steps)}
    folder = pipeline.file.parent
    counts = _count_mentions(views)
    queries = {
        (name := f"{source.name}{DEAD_LETTERS}"): QueryIdentity(
            _streams_read([source], folder), writes=outputs_of(pipeline, [name])
        )
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource) and source.dead_letter_topic is not None and source.format != "raw"
    }
    for name, sinks in sinks_by_query(pipeline.sinks, each_sink_alone).items():
        upstream = _upstream(views[sinks[0].view.casefold()], views)
        read = _streams_read((view for view in upstream if not isinstance(view, SqlStep | PythonStep)), folder)
        steps = {view.name: digest(_text(view)) for view in upstream if not isinstance(view, TableSource)}
        code = {view.name: code_digest(view.module, folder) for view in upstream if isinstance(view, PythonStep)}
        queries[name] = QueryIdentity(
            read,
            steps,
            sinks[0].mode,
            code,
            outputs_of(pipeline, [sink.name for sink in sinks]),
            mentions={source: counts[sinks[0].view.casefold()][source] for source in read},
        )
    return queries


def _count_mentions(views: Mapping[str, Source | Step]) -> dict[str, Counter[str]]:
    """Return for each view in how many places it reads each source, directly or through the views above it. What the
    code of a Python step does with its inputs is not known: each counts once."""
    counts: dict[str, Counter[str]] = {}
    for key, view in views.items():
        counts[key] = Counter() if isinstance(view, SqlStep | PythonStep) else Counter({view.name: 1})
        for read in _views_read(view, views):
            if read is not view and (above := counts.get(read.name.casefold())) is not None:
                counts[key].update(above)
    return counts


def _views_read(view: Source | Step, views: Mapping[str, Source | Step]) -> list[Source | Step]:
    """Return the views that a view reads, as often as it names them."""
    if isinstance(view, SqlStep):
        return [views[use.view] for use in mentions(view.sql, views)]
    return [views[name.casefold()] for name in view.inputs] if isinstance(view, PythonStep) else []


def _upstream(view: Source | Step, views: Mapping[str, Source | Step]) -> list[Source | Step]:
    """Return the view and all views that it reads, directly or through others, sorted by name."""
    upstream: dict[str, Source | Step] = {}
    waiting = [view]
    while waiting:
        one = waiting.pop()
        if one.name in upstream:
            continue
        upstream[one.name] = one
        waiting += _views_read(one, views)
    return [upstream[name] for name in sorted(upstream)]


def _text(view: Source | Step) -> str:
    """Return the parts of a view on which state depends, as text. The watermark's delay may change: Spark allows it."""
    assert not isinstance(view, TableSource)
    watermark = view.watermark.column if view.watermark else ""
    stateful = f"watermark {watermark} deduplicate {' '.join(view.deduplicate)}"
    if isinstance(view, SqlStep):
        return f"{view.sql} {stateful}"
    if isinstance(view, PythonStep):
        return f"{view.module}:{view.function}({', '.join(view.inputs)}) {dict(view.args)} {stateful}"
    return stateful


def _streams_read(sources: Iterable[Source | Step], folder: Path) -> dict[str, list[str]]:
    """Return what the streams among the sources read. Paths are relative to the folder, which may move."""
    read: dict[str, list[str]] = {}
    for source in sources:
        if isinstance(source, TopicSource):
            pattern = [f"topics like {source.pattern}"] if source.pattern else []
            read[source.name] = [*(f"topic {topic}" for topic in source.topics), *pattern]
        elif isinstance(source, BackendSource):
            read[source.name] = [f"rows of {source.backend}"]
        elif isinstance(source, DatabaseSource):
            read[source.name] = [f"changes of {address_of(source).shown} {source.table}"]
        elif isinstance(source, FileSource) and source.watch:
            # Of a URL, normpath is what relpath gave where the working directory was the folder.
            path = source.path
            path = os.path.normpath(path) if is_url(path) else os.path.relpath(path, folder)
            read[source.name] = [f"files {path}"]
    return read


def check(
    directory: StateDirectory,
    pipeline: str,
    queries: Mapping[str, QueryIdentity],
    forgotten: Collection[str] | None = (),
    left_out: Collection[str] = (),
    shown_file: str = "FILE",
) -> None:
    """Raise one WrongCheckpoint that names all queries which must not resume from their checkpoints.

    The caller will remove the checkpoints of `forgotten` queries afterwards; None for all. The queries of `left_out`
    belong to the pipeline, but not to this run. `shown_file` is the pipeline's file in the command of the message.
    """
    try:
        recorded = _read_identity(directory)
    except StateRefused:
        if forgotten is None:  # the run will remove the damaged file with all checkpoints
            return
        raise
    if recorded is not None and recorded["pipeline"] != pipeline:
        raise WrongCheckpoint(
            f"{directory.path} holds the checkpoints of pipeline {recorded['pipeline']}, not of {pipeline};"
            " give this one a directory of its own with --state DIR"
        )
    if forgotten is None:
        return
    kept = [name for name in directory.queries() if name not in forgotten and directory.has_progress(name)]
    conflicts: list[_Conflict] = []
    for name, query in queries.items():
        conflicts += _checkpoint_conflicts(directory, name, query, kept, recorded)
    removed = [name for name in kept if name not in queries and name not in left_out]
    for name, query in queries.items():
        if name not in kept:
            conflicts += _rename_conflicts(query, name, removed, recorded)
    if conflicts:
        reasons = "; ".join(f"sink {conflict.sink}: {conflict.reason}" for conflict in conflicts)
        checkpoints = dict.fromkeys(conflict.checkpoint for conflict in conflicts)
        raise WrongCheckpoint(f"{reasons}; {_hint(shown_file, checkpoints)}")


def resumes_with_changed_steps(
    directory: StateDirectory, queries: Mapping[str, QueryIdentity], forgotten: Collection[str] | None
) -> list[str]:
    """Return a line for each query that may resume although its steps changed, as its checkpoint has only offsets.

    Its earlier output comes from the old steps, and the user should know that. The `forgotten` ones, None for all, do
    not resume.
    """
    if forgotten is None:
        return []
    recorded = _recorded_queries(directory)
    return [
        f"sink {name}: step{'s' if len(changed) > 1 else ''} {', '.join(changed)} changed since the last run; what was"
        f" written before stays as it is, `--fresh {name}` writes it again"
        for name, query in queries.items()
        if name in recorded and name not in forgotten and directory.has_progress(name)
        if (changed := _changed_steps(query, recorded[name]))
    ]


def _changed_steps(now: QueryIdentity, before: Mapping[str, Any]) -> list[str]:
    old, code = before["steps"], before.get("code", now.code)  # older versions did not record `code`
    return [
        step
        for step in {**old, **now.steps}
        if not _is_same_step(old.get(step), now.steps.get(step)) or not is_same_code(code.get(step), now.code.get(step))
    ]


class _Conflict(NamedTuple):
    """Why a sink must not run with the checkpoints as they are, and the query whose checkpoint is the reason."""

    sink: str
    reason: str
    checkpoint: str


def _checkpoint_conflicts(
    directory: StateDirectory,
    name: str,
    query: QueryIdentity,
    kept: Collection[str],
    recorded: Mapping[str, Any] | None,
) -> Iterator[_Conflict]:
    for other in kept:
        shared = [sink for sink in sinks_of(name) if sink in sinks_of(other)]
        if other != name and shared:
            # In this query the sink would start from scratch and write everything again.
            reason = f"it ran as {_query_phrase(other)} before, and is to run as {_query_phrase(name)}"
            yield _Conflict(shared[0], reason, other)
    if name in kept and (mismatch := _why_not_resume(directory, name, query, recorded)):
        yield _Conflict(name, mismatch, name)


def _rename_conflicts(
    query: QueryIdentity, name: str, removed: Collection[str], recorded: Mapping[str, Any] | None
) -> Iterator[_Conflict]:
    """Yield a conflict if a query without a checkpoint would write again what a removed query wrote before."""
    for other in removed:
        written = (recorded or {"queries": {}})["queries"].get(other, {}).get("writes", ())
        if shared := [output for output in query.writes if output in written]:
            reason = f"it has no checkpoint, and sink {other}, no longer in the file, wrote to {shared[0]} before"
            yield _Conflict(name, reason, other)


def _why_not_resume(
    directory: StateDirectory, name: str, query: QueryIdentity, recorded: Mapping[str, Any] | None
) -> str | None:
    if recorded is None:
        place = directory.checkpoint(name)
        return f"{place} is a checkpoint, but nothing says of which pipeline ({IDENTITY} is missing)"
    before = recorded["queries"].get(name)
    return (
        _mismatch(directory, name, query, before) if before else f"it has a checkpoint, but {IDENTITY} does not list it"
    )


def record(
    directory: StateDirectory, pipeline: str, queries: Mapping[str, QueryIdentity], new_id: Callable[[], str]
) -> str:
    """Write the identities of the queries to identity.json, keep those of other queries, return the pipeline's id."""
    recorded = _read_identity(directory) or {"pipeline": pipeline, "id": new_id(), "queries": {}}
    identities = {name: asdict(query) | {"id": directory.query_id(name)} for name, query in queries.items()}
    updated: dict[str, Any] = recorded | {"queries": recorded["queries"] | identities}
    if updated != recorded or not (directory.path / IDENTITY).exists():
        write_json(directory.path / IDENTITY, updated)
    return str(recorded["id"])


def outputs_written(directory: StateDirectory, queries: Iterable[str]) -> set[str]:
    """Return the topics and tables to which these queries appended, as texts of outputs.outputs_of. None are known if
    identity.json is damaged: `check` accepts that only if all queries start from scratch."""
    try:
        recorded = _recorded_queries(directory)
    except StateRefused:
        return set()
    return {output for name in queries for output in recorded.get(name, {}).get("writes", ())}


def _recorded_queries(directory: StateDirectory) -> Mapping[str, Any]:
    recorded = _read_identity(directory)
    return {} if recorded is None else recorded["queries"]


def _read_identity(directory: StateDirectory) -> dict[str, Any] | None:
    return read_json(directory.path / IDENTITY, ("pipeline", "id", "queries"))


def forget(directory: StateDirectory, queries: Iterable[str] | None) -> list[str]:
    """Remove the checkpoints of these queries, or with None all; return the queries that had one."""
    existing = directory.queries()
    removed = existing if queries is None else [name for name in queries if name in existing]
    for name in removed:
        directory.forget(name)
    if queries is None:
        (directory.path / IDENTITY).unlink(missing_ok=True)
    return removed


def _query_phrase(query: str) -> str:
    sinks = sinks_of(query)
    return f"a query of {' and '.join(sinks)}" if len(sinks) > 1 else "a query of its own"


def _mismatch(directory: StateDirectory, name: str, now: QueryIdentity, before: Mapping[str, Any]) -> str | None:
    """Return why `now` cannot resume from the checkpoint of `before`, or None.

    A source may get more topics: their records are read from its `start`. Steps may change freely if the checkpoint
    has only the offsets of one stream, and that is read in as many places as before. Spark identifies offsets by their
    order in the plan.
    """
    if before["id"] and directory.query_id(name) not in (None, before["id"]):
        return f"{directory.checkpoint(name)} was put there by another query"
    if not _covers(now.sources, before["sources"]):
        return f"its checkpoint is about {_streams(before['sources'])}, and it reads {_streams(now.sources)} now"
    mentions_before = before.get("mentions", now.mentions)  # older versions did not record them
    for source, places in now.mentions.items():
        if mentions_before.get(source, places) != places:
            places_before = mentions_before[source]
            return f"in its checkpoint {source} is read in {_places(places_before)}, and it is read in {places} now"
    has_state = directory.has_state(name)
    if not has_state and len(now.sources) < 2:
        return None
    holds = "state" if has_state else "the offsets of several streams"
    if changed := _changed_steps(now, before):
        plural = "s" if len(changed) > 1 else ""
        return f"its checkpoint holds {holds}, and step{plural} {', '.join(changed)} changed since"
    if has_state and now.mode != before["mode"]:
        return f"its checkpoint holds state in mode {before['mode']}, and the mode is {now.mode} now"
    return None


def _covers(now: Mapping[str, Sequence[str]], before: Mapping[str, Sequence[str]]) -> bool:
    if now.keys() != before.keys():
        return False
    # Earlier versions recorded a URL relative to the working directory, such as ../../s3a:/bucket/in.
    return all({_BEFORE_URL.sub("files ", each) for each in read} <= set(now[name]) for name, read in before.items())


def _streams(sources: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{name} ({', '.join(read)})" for name, read in sources.items()) or "no stream"


def _places(count: int) -> str:
    return f"{count} place{'s' if count != 1 else ''}"


def _hint(shown_file: str, checkpoints: Iterable[str]) -> str:
    names = " ".join(f"--fresh {name}" for name in checkpoints)
    return (
        f"undo the change, or `moldau pipeline run {shown_file} {names}` begins again where `start` of the sources"
        " says and writes everything once more. With --existing clear it empties the topics and makes new tables before"
    )
