"""Starts queries from scratch (--fresh): they write everything again, so their earlier output is cleared if the user
wants that, and doubled otherwise.

Topics are emptied, because a topic cannot be renamed. Tables are renamed; the user can delete them later. In a table
that is written by key (upsert) nothing is doubled, but rows whose keys do not come again would stay, so it is renamed
too. A table that is written as a whole (complete) stays: the next batch replaces all its rows. Tables of databases are
renamed within their database.

    fresh.json = {"queries": [whose checkpoints are removed] or null for all, "topics": [to empty],
                  "tables": [to rename], "databases": [tables of databases to rename, as outputs]}

This file is written first and removed last, so that the next run finishes the work of a killed one. Otherwise a run
that is killed between the topic and the checkpoint would leave a query that resumes after records that are deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault, UnusableProperty
from moldau.base.ids import TopicPartition
from moldau.client.admin.groups import Groups
from moldau.client.cluster import EARLIEST, Cluster
from moldau.databases.errors import DatabaseError
from moldau.databases.sql import NAME_LENGTH_MAX, table_name
from moldau.databases.urls import parse_url
from moldau.pipelines.locations import is_url
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.queries import sinks_of
from moldau.pipelines.running import identity
from moldau.pipelines.running.broker_watch import cluster_of_pipeline
from moldau.pipelines.running.outputs import (
    DATABASE,
    ROUTE,
    TABLE,
    TOPIC,
    appended_by,
    merged_by,
    outputs_of,
    upserted_by,
)
from moldau.pipelines.running.renamed_pipeline import written_before
from moldau.pipelines.running.state_directory import StateDirectory, StateRefused, read_json, write_json
from moldau.pipelines.spec import DatabaseSink, Pipeline

if TYPE_CHECKING:
    from moldau.databases.destinations import Destination

PLAN: Final = "fresh.json"
TIMEOUT_S: Final = 30.0
Existing = Literal["clear", "keep"]
Decide = Callable[["Outputs"], Existing]
"""Decides what to do with outputs that are not empty."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The earlier outputs of queries that start from scratch, as far as they are not empty."""

    topics: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    """Tables that are appended to: as in topics, everything would be there twice."""
    routes: tuple[str, ...] = ()
    """Sinks that choose the topic of each record: it is not known which topics they wrote to."""
    upserted: tuple[str, ...] = ()
    """Tables that are written by key: rows whose keys do not come again would stay."""
    databases: tuple[str, ...] = ()
    """Tables of databases that are appended to, as "table in URL"."""
    merged: tuple[str, ...] = ()
    """Tables of databases that are written by key."""

    def __len__(self) -> int:
        appended = len(self.topics) + len(self.tables) + len(self.routes) + len(self.databases)
        return appended + len(self.upserted) + len(self.merged)

    @property
    def appended(self) -> str:
        """The names of the outputs that are appended to, for messages."""
        names = [f"topic {name}" for name in self.topics]
        names += [f"table {path}" for path in (*self.tables, *self.databases)]
        return ", ".join(names + [f"what sink {name} routed" for name in self.routes])

    @property
    def consequences(self) -> str:
        """What these outputs would hold if they are kept."""
        twice = f"{self.appended} would hold everything twice" if self.appended else ""
        tables = ", ".join(f"table {path}" for path in (*self.upserted, *self.merged))
        stale = f"{tables} would keep rows whose keys do not come again" if tables else ""
        return "; ".join(filter(None, [twice, stale]))

    def check_clearing(self, pipeline: Pipeline, kept: Collection[str]) -> None:
        """Raise PipelineError if a sink in `kept` would lose its output, or if it is not known what to clear."""
        if self.routes:
            raise PipelineError(
                f"sink {self.routes[0]} decides the topic of each record, so nobody knows which ones to empty:"
                " empty or delete them yourself, then run with --existing keep"
            )
        for name, (kind, target) in appended_by(pipeline).items():
            cleared = {TOPIC: self.topics, DATABASE: self.databases}.get(kind, self.tables)
            if name in kept and target in cleared:
                raise PipelineError(
                    f"{kind} {target} is also written by {name}, which does not start from scratch: name it too"
                    f" (--fresh {name}), or run with --existing keep"
                )
        if self.topics:
            with _connect(
                pipeline
            ):  # refuse settings with which they cannot be emptied now, not when Spark has started
                pass
        if remote := [path for path in (*self.tables, *self.upserted) if is_url(path)]:
            raise PipelineError(
                f"table {remote[0]} cannot be renamed from here: move it, then run with --existing keep"
            )


@dataclass(frozen=True, slots=True)
class FreshStart:
    """Which queries start from scratch, and which of their outputs are cleared first."""

    queries: tuple[str, ...] | None = ()
    """Their checkpoints are removed; None for all."""
    topics: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()

    @staticmethod
    def read(directory: StateDirectory) -> FreshStart | None:
        """Return the one that an earlier run did not finish, or None."""
        content = read_json(directory.path / PLAN, ("queries", "topics", "tables"))
        if content is None:
            return None
        queries = None if content["queries"] is None else tuple(content["queries"])
        databases = tuple(content.get("databases", ()))  # an earlier version did not write them
        return FreshStart(queries, tuple(content["topics"]), tuple(content["tables"]), databases)

    def perform(self, directory: StateDirectory, pipeline: Pipeline) -> list[str]:
        """Clear the outputs and remove the checkpoints. Return a line for each output that was cleared."""
        if self.queries == ():
            return []
        write_json(directory.path / PLAN, asdict(self))
        lines = [
            *_empty_topics(pipeline, self.topics),
            *_rename_tables(self.tables),
            *_rename_in_databases(pipeline, self.databases),
        ]
        groups = _batch_groups(pipeline, directory, self.queries)
        identity.forget(directory, self.queries)
        (directory.path / PLAN).unlink()
        _delete_groups(pipeline, groups)
        return lines


def plan_fresh_start(
    pipeline: Pipeline, directory: StateDirectory, queries: Collection[str] | None, decide: Decide
) -> FreshStart:
    """Return the plan for these queries, None for all; `decide` is called if some of their outputs are not empty."""
    with_progress = [name for name in directory.queries() if directory.has_progress(name)]
    forgotten_queries = [name for name in with_progress if queries is None or name in queries]
    sinks = {sink for name in forgotten_queries for sink in sinks_of(name)}
    sinks |= _renamed_sinks(pipeline, directory, with_progress, forgotten_queries)
    sinks |= _sinks_of_renamed_pipeline(pipeline, directory, queries)
    outputs = _nonempty_outputs(pipeline, sinks) if sinks else Outputs()
    to_forget = None if queries is None else tuple(queries)
    if not outputs or decide(outputs) == "keep":
        return FreshStart(to_forget)
    outputs.check_clearing(pipeline, kept=appended_by(pipeline).keys() - sinks)
    tables, databases = (*outputs.tables, *outputs.upserted), (*outputs.databases, *outputs.merged)
    return FreshStart(to_forget, outputs.topics, tables, databases)


def _renamed_sinks(
    pipeline: Pipeline, directory: StateDirectory, with_progress: Collection[str], forgotten: Collection[str]
) -> set[str]:
    """Return the sinks without a checkpoint that write to the output of a forgotten query whose sinks are no longer in
    the file."""
    sinks = {sink.name for sink in pipeline.sinks}
    removed = [name for name in forgotten if sinks.isdisjoint(sinks_of(name))]
    outputs_before = identity.outputs_written(directory, removed)
    with_checkpoint = {sink for name in with_progress for sink in sinks_of(name)}
    return {sink for sink in sinks - with_checkpoint if outputs_before.intersection(outputs_of(pipeline, [sink]))}


def _sinks_of_renamed_pipeline(
    pipeline: Pipeline, directory: StateDirectory, queries: Collection[str] | None
) -> set[str]:
    """Return the sinks of these queries whose output the pipeline wrote under another name. It wrote its upserted
    tables too; identity.json does not list them."""
    written = written_before(directory, pipeline, identity.of_pipeline(pipeline))
    names = {one.query for one in written}
    if written:
        by_key = upserted_by(pipeline).keys() | merged_by(pipeline).keys()
        names |= {sink for sink in by_key if not directory.has_progress(sink)}
    return {sink for name in names if queries is None or name in queries for sink in sinks_of(name)}


def existing_output_warnings(pipeline: Pipeline, sinks: Collection[str]) -> list[str]:
    """Return a line that names the topics and tables to which a batch will append, if some are not empty."""
    outputs = replace(_nonempty_outputs(pipeline, sinks), routes=(), upserted=(), merged=())
    if cluster_of_pipeline(pipeline) is None:  # it is not known which topics are empty
        outputs = replace(outputs, topics=())
    verb = "holds" if len(outputs) == 1 else "hold"
    return [f"{outputs.appended} already {verb} something: a batch adds to it"] if outputs else []


def refuse_to_decide(outputs: Outputs) -> Existing:
    """Raise PipelineError: for callers that cannot ask the user."""
    raise PipelineError(
        f"{outputs.consequences}: --existing clear empties topics and renames tables first,"
        " --existing keep keeps them and writes everything once more"
    )


def _nonempty_outputs(pipeline: Pipeline, names: Collection[str]) -> Outputs:
    by_kind: dict[str, tuple[str, ...]] = {TOPIC: (), TABLE: (), ROUTE: (), DATABASE: ()}
    written = [output for name, output in appended_by(pipeline).items() if name in names]
    for kind, target in dict.fromkeys(written):
        by_kind[kind] += (target,)
    topics = _nonempty_topics(pipeline, by_kind[TOPIC])
    upserted = [path for name, path in upserted_by(pipeline).items() if name in names]
    merged = [output for name, output in merged_by(pipeline).items() if name in names]
    return Outputs(
        topics, _nonempty_tables(by_kind[TABLE]), by_kind[ROUTE], _nonempty_tables(upserted),
        _nonempty_in_databases(pipeline, by_kind[DATABASE]), _nonempty_in_databases(pipeline, merged),
    )  # fmt: skip


def _nonempty_topics(pipeline: Pipeline, topics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the topics that hold something. If only the Java client can connect, that is not known: return all."""
    if cluster_of_pipeline(pipeline) is None:
        return topics
    with _connect(pipeline) as cluster:
        return tuple(topic for topic, ends in _ends(cluster, topics).items() if ends)


def _nonempty_tables(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the tables that hold something. Of a table elsewhere that is not known: it is returned too."""
    return tuple(path for path in paths if is_url(path) or (Path(path).is_dir() and os.listdir(path)))


def _nonempty_in_databases(pipeline: Pipeline, outputs: Collection[str]) -> tuple[str, ...]:
    from moldau.databases import writing

    with _database_errors():
        return tuple(output for output, each in _destinations(pipeline, outputs) if not writing.is_empty(each))


def _destinations(pipeline: Pipeline, outputs: Collection[str]) -> Iterator[tuple[str, Destination]]:
    """Yield each of these tables of databases once, and where it is: the outputs have no passwords."""
    from moldau.databases.destinations import Destination

    sinks = {sink.output: sink for sink in pipeline.sinks if isinstance(sink, DatabaseSink)}
    for output in outputs:
        if output in sinks:
            sink = sinks[output]
            yield output, Destination(url=parse_url(sink.database), table=table_name(sink.table))


@contextmanager
def _database_errors() -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        raise PipelineError(str(error)) from error


def _ends(cluster: Cluster, topics: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
    """Return the log end offsets of the partitions that are not empty, by topic; none for a topic that is missing."""
    existing = cluster.topics()
    nonempty = {}
    for topic in topics:
        partitions = [TopicPartition(topic, number) for number in existing[topic].leaders] if topic in existing else []
        starts, ends = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST)), cluster.latest(partitions)
        nonempty[topic] = {partition: end for partition, end in ends.items() if end > starts[partition]}
    return nonempty


def _empty_topics(pipeline: Pipeline, topics: Collection[str]) -> Iterator[str]:
    if not topics:
        return
    with _connect(pipeline) as cluster:
        for topic, ends in _ends(cluster, topics).items():
            if ends:
                cluster.delete_records(ends)
                yield f"emptied topic {topic}"


def _rename_tables(tables: Iterable[str]) -> Iterator[str]:
    for path in tables:
        if not Path(path).exists():
            continue
        aside = f"{path}.before-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        try:
            os.rename(path, aside)
        except OSError as error:
            raise StorageFault(path, error) from error
        yield f"renamed table {path} to {aside}"


def _rename_in_databases(pipeline: Pipeline, outputs: Collection[str]) -> Iterator[str]:
    from moldau.databases import writing

    for output, destination in _destinations(pipeline, outputs):
        suffix = f"_before_{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        aside = destination.table.name.encode()[: NAME_LENGTH_MAX - len(suffix)].decode(errors="ignore") + suffix
        with _database_errors():
            if not writing.is_empty(destination):
                writing.rename(destination, aside)
                yield f"renamed table {output} to {aside}"


def _batch_groups(pipeline: Pipeline, directory: StateDirectory, queries: Collection[str] | None) -> list[str]:
    """Return the groups in which exactly-once sinks commit their batch ids: no longer needed without a checkpoint. If
    its file with the id is damaged, they stay, which does no harm."""
    groups: list[str] = []
    for name in directory.queries():
        if queries is None or name in queries:
            with suppress(StateRefused):
                query_id = directory.query_id(name)
                groups += [f"{pipeline.name}.{sink}-{query_id}" for sink in sinks_of(name)]
    return groups


def _delete_groups(pipeline: Pipeline, groups: Iterable[str]) -> None:
    """Delete the groups, and ignore errors: groups that stay do no harm."""
    with suppress(PipelineError), _connect(pipeline) as cluster:
        Groups(cluster, int(TIMEOUT_S * 1000)).delete(groups)


@contextmanager
def _connect(pipeline: Pipeline) -> Iterator[Cluster]:
    assert pipeline.bootstrap is not None
    try:
        with closing(Cluster(pipeline.bootstrap, pipeline.kafka, TIMEOUT_S)) as cluster:
            yield cluster
    except UnusableProperty as error:
        raise PipelineError(
            f"the topics cannot be emptied from here: {error}; empty them yourself, then run with --existing keep"
        ) from error
    except KafkaError as error:
        hint = "; a compacted topic cannot be emptied: delete it" if error.code is ErrorCode.POLICY_VIOLATION else ""
        raise PipelineError(f"{error}{hint}") from error
    except (OSError, MalformedData) as error:
        raise PipelineError(str(error)) from error
