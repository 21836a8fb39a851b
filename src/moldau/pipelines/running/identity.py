"""Whose checkpoints these are: refuses to resume a query from a checkpoint that another query, or another plan, wrote.

    identity.json = {"pipeline": name, "id": random hex, "queries": {query: {"id": Spark's query id or null,
                     "sources": {name: [what is read]}, "steps": {name: digest of its text}, "mode": output mode,
                     "code": {Python step: digest of its modules}, "writes": [what is appended to]}}}

Spark itself trusts a checkpoint: with other sources it reads other topics from the offsets of the old ones, with
another aggregation it fails deep in its state store or, worse, does not. A sink with another name has no checkpoint and
writes everything again. So what each query was is written down here before its first batch, and compared before the
next run. No Spark in here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from moldau.pipelines.drawing.sql_names import views_used
from moldau.pipelines.queries import DEAD_LETTERS, sinks_by_query, sinks_of
from moldau.pipelines.running.outputs import outputs_of
from moldau.pipelines.running.python_code import code_digest
from moldau.pipelines.running.state_directory import StateDirectory, StateRefused, read_json, write_json
from moldau.pipelines.spec import FileSource, Pipeline, PythonStep, Source, SqlStep, Step, TableSource, TopicSource

IDENTITY: Final = "identity.json"


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """What a checkpoint is bound to."""

    sources: Mapping[str, Sequence[str]]
    """Each stream it reads, and from where: topics, patterns, files."""
    steps: Mapping[str, str] = field(default_factory=dict)
    """Each step on the way, and the digest of its text."""
    mode: str = "append"
    code: Mapping[str, str] = field(default_factory=dict)
    """Each Python step among them, and the digest of its modules."""
    writes: Sequence[str] = ()
    """The topics and tables that it appends to."""
    id: str | None = None
    """Spark's query id, known after the first start."""


class WrongCheckpoint(StateRefused):
    """A checkpoint that this query must not resume from."""


def digest(text: str) -> str:
    """Of a step's text, white space aside: a re-indented query is the same query."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def of_pipeline(pipeline: Pipeline, apart: bool = False) -> dict[str, QueryIdentity]:
    """Every query that a run of the pipeline has, by name: one per sink, where sinks that share a query count as one
    unless `apart`, and one per source with a dead-letter topic."""
    views = {view.name.casefold(): view for view in (*pipeline.sources.values(), *pipeline.steps)}
    folder = pipeline.file.parent
    queries = {
        (name := f"{source.name}{DEAD_LETTERS}"): QueryIdentity(
            _read_by([source], folder), writes=outputs_of(pipeline, [name])
        )
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource) and source.dead_letter_topic is not None and source.format != "raw"
    }
    for name, sinks in sinks_by_query(pipeline.sinks, apart).items():
        upstream = _upstream(views[sinks[0].view.casefold()], views)
        sources = [view for view in upstream if not isinstance(view, SqlStep | PythonStep)]
        steps = {view.name: digest(_text(view)) for view in upstream if not isinstance(view, TableSource)}
        code = {view.name: code_digest(view.module, folder) for view in upstream if isinstance(view, PythonStep)}
        queries[name] = QueryIdentity(
            _read_by(sources, folder), steps, sinks[0].mode, code, outputs_of(pipeline, [sink.name for sink in sinks])
        )
    return queries


def _upstream(view: Source | Step, views: Mapping[str, Source | Step]) -> list[Source | Step]:
    """The view and all it is made of, by name."""
    found: dict[str, Source | Step] = {}
    waiting = [view]
    while waiting:
        one = waiting.pop()
        if one.name in found:
            continue
        found[one.name] = one
        if isinstance(one, SqlStep):
            waiting += [views[use.view] for use in views_used(one.sql, views)]
        elif isinstance(one, PythonStep):
            waiting += [views[name.casefold()] for name in one.inputs]
    return [found[name] for name in sorted(found)]


def _text(view: Source | Step) -> str:
    """What of a view the state of a query depends on. A watermark may be moved: Spark takes that well."""
    assert not isinstance(view, TableSource)
    watermark = view.watermark.column if view.watermark else ""
    kept = f"watermark {watermark} deduplicate {' '.join(view.deduplicate)}"
    if isinstance(view, SqlStep):
        return f"{view.sql} {kept}"
    if isinstance(view, PythonStep):
        return f"{view.module}:{view.function}({', '.join(view.inputs)}) {dict(view.args)} {kept}"
    return kept


def _read_by(sources: Iterable[Source | Step], folder: Path) -> dict[str, list[str]]:
    """What the streams among the sources read. Paths are told from the folder, which may be moved as a whole."""
    read: dict[str, list[str]] = {}
    for source in sources:
        if isinstance(source, TopicSource):
            pattern = [f"topics like {source.pattern}"] if source.pattern else []
            read[source.name] = [*(f"topic {topic}" for topic in source.topics), *pattern]
        elif isinstance(source, FileSource) and source.watch:
            read[source.name] = [f"files {os.path.relpath(source.path, folder)}"]
    return read


def check(
    directory: StateDirectory,
    pipeline: str,
    queries: Mapping[str, QueryIdentity],
    forgotten: Collection[str] | None = (),
    left_out: Collection[str] = (),
) -> None:
    """WrongCheckpoint, for all of them at once, if any of the queries could not rightly go on from its checkpoint.
    `forgotten` are the queries whose checkpoints are to be removed, if this goes well; None for all there are.
    `left_out` are queries of the pipeline that are not to run now."""
    known = read_json(directory.path / IDENTITY)
    if known is not None and known["pipeline"] != pipeline:
        raise WrongCheckpoint(
            f"{directory.path} holds the checkpoints of pipeline {known['pipeline']}, not of {pipeline};"
            " give this one a directory of its own with --state DIR"
        )
    if forgotten is None:
        return
    kept = [name for name in directory.queries() if name not in forgotten and directory.has_progress(name)]
    wrong = [found for name, query in queries.items() for found in _wrong(directory, name, query, kept, known)]
    gone = [name for name in kept if name not in queries and name not in left_out]
    new = {name: query for name, query in queries.items() if name not in kept}
    wrong += [found for name, query in new.items() for found in _renamed(query, name, gone, known)]
    if wrong:
        reasons = "; ".join(f"sink {sink}: {reason}" for sink, reason, _ in wrong)
        raise WrongCheckpoint(f"{reasons}; {_way_out(dict.fromkeys(checkpoint for _, _, checkpoint in wrong))}")


def changed_meaning(
    directory: StateDirectory, queries: Mapping[str, QueryIdentity], forgotten: Collection[str] | None
) -> list[str]:
    """A line for each query that goes on rightly, but not as it was: nothing is kept but offsets, so other steps do no
    harm. What was written before has the old meaning, and somebody should know."""
    known = (read_json(directory.path / IDENTITY) or {"queries": {}})["queries"]
    if forgotten is None:
        return []
    return [
        f"sink {name}: step{'s' if len(changed) > 1 else ''} {', '.join(changed)} changed since the last run; what was"
        f" written before stays as it is, `--fresh {name}` writes it anew"
        for name, query in queries.items()
        if name in known and name not in forgotten and directory.has_progress(name)
        if (changed := _changed_steps(query, known[name]))
    ]


def _changed_steps(now: QueryIdentity, before: Mapping[str, Any]) -> list[str]:
    old, code = before["steps"], before.get("code", now.code)  # which versions before did not write down
    return [
        step
        for step in {**old, **now.steps}
        if old.get(step) != now.steps.get(step) or code.get(step) != now.code.get(step)
    ]


def _wrong(
    directory: StateDirectory, name: str, query: QueryIdentity, kept: Collection[str], known: Mapping[str, Any] | None
) -> Iterator[tuple[str, str, str]]:
    """Each checkpoint that is in the query's way: the sink, what is wrong, and whose checkpoint it is."""
    for other in kept:
        again = [sink for sink in sinks_of(name) if sink in sinks_of(other)]
        if other != name and again:
            # In this query it would begin anew, and write all of it again.
            yield again[0], f"it ran as {_company(other)} before, and is to run as {_company(name)}", other
    if name in kept and (refused := _why_not(directory, name, query, known)):
        yield name, refused, name


def _renamed(
    query: QueryIdentity, name: str, gone: Collection[str], known: Mapping[str, Any] | None
) -> Iterator[tuple[str, str, str]]:
    """A query without a checkpoint would write once more what one wrote that is not in the file any more."""
    for other in gone:
        written = (known or {"queries": {}})["queries"].get(other, {}).get("writes", ())
        if again := [output for output in query.writes if output in written]:
            yield (
                name,
                f"it has no checkpoint, and sink {other}, no longer in the file, wrote to {again[0]} before",
                other,
            )


def _why_not(directory: StateDirectory, name: str, query: QueryIdentity, known: Mapping[str, Any] | None) -> str | None:
    if known is None:
        place = directory.checkpoint(name)
        return f"{place} is a checkpoint, but nothing says of which pipeline ({IDENTITY} is missing)"
    written = known["queries"].get(name)
    return _mismatch(directory, name, query, written) if written else "is not among those that ran here"


def record(
    directory: StateDirectory, pipeline: str, queries: Mapping[str, QueryIdentity], new_id: Callable[[], str]
) -> str:
    """Writes down what the queries are, beside what is known of others; returns the pipeline's id."""
    known = read_json(directory.path / IDENTITY) or {"pipeline": pipeline, "id": new_id(), "queries": {}}
    told = {name: asdict(query) | {"id": directory.query_id(name)} for name, query in queries.items()}
    wanted: dict[str, Any] = known | {"queries": known["queries"] | told}
    if wanted != known or not (directory.path / IDENTITY).exists():
        write_json(directory.path / IDENTITY, wanted)
    return str(known["id"])


def outputs_written(directory: StateDirectory, queries: Iterable[str]) -> set[str]:
    """What these queries appended to, in the words of outputs.py."""
    known = (read_json(directory.path / IDENTITY) or {"queries": {}})["queries"]
    return {output for name in queries for output in known.get(name, {}).get("writes", ())}


def forget(directory: StateDirectory, queries: Iterable[str] | None) -> list[str]:
    """Removes the checkpoints of these queries, or with None of all there are; returns whose there was."""
    there = directory.queries()
    gone = there if queries is None else [name for name in queries if name in there]
    for name in gone:
        directory.forget(name)
    if queries is None:
        (directory.path / IDENTITY).unlink(missing_ok=True)
    return gone


def _company(query: str) -> str:
    sinks = sinks_of(query)
    return f"a query of {' and '.join(sinks)}" if len(sinks) > 1 else "a query of its own"


def _mismatch(directory: StateDirectory, name: str, now: QueryIdentity, before: Mapping[str, Any]) -> str | None:
    """Why `now` cannot resume what `before` began, or None.

    A source may get more topics: they begin where its `start` says. Steps may change freely while nothing but offsets
    is kept, and those of one stream: Spark tells the offsets of several apart by their order in the plan.
    """
    if before["id"] and directory.query_id(name) not in (None, before["id"]):
        return f"{directory.checkpoint(name)} was put there by another query"
    if not _covers(now.sources, before["sources"]):
        return f"its checkpoint is about {_streams(before['sources'])}, and it reads {_streams(now.sources)} now"
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
    return now.keys() == before.keys() and all(set(read) <= set(now[name]) for name, read in before.items())


def _streams(sources: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{name} ({', '.join(read)})" for name, read in sources.items()) or "no stream"


def _way_out(checkpoints: Iterable[str]) -> str:
    names = " ".join(f"--fresh {name}" for name in checkpoints)
    return (
        f"undo the change, or `moldau pipeline run FILE {names}` begins again where `start` of the sources says, and"
        " writes everything once more: with --existing clear into emptied topics and new tables"
    )
