"""A query that begins anew writes everything once more. What it wrote before is emptied first, or doubled on purpose.

Topics are emptied, tables are renamed: a topic cannot be renamed, and a table that nobody misses is deleted as easily.
Tables that are written by key or as a whole (upsert, complete) hold nothing twice, and stay.

    fresh.json = {"queries": [whose checkpoints go] or null for all, "topics": [to empty], "tables": [to rename]}

is written first and removed last. A run that is killed between emptying a topic and forgetting the checkpoint would
otherwise leave a query that goes on behind records that are gone; the next run finishes what was begun.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault, UnusableProperty
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, Cluster
from moldau.client.groups import Groups
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.queries import sinks_of
from moldau.pipelines.running import identity
from moldau.pipelines.running.outputs import ROUTE, TABLE, TOPIC, outputs_of, written_by
from moldau.pipelines.running.state_directory import StateDirectory, read_json, write_json
from moldau.pipelines.spec import Pipeline

PLAN: Final = "fresh.json"
TIMEOUT_S: Final = 30.0
Existing = Literal["clear", "keep"]
Decide = Callable[["Outputs"], Existing]
"""What to do with outputs that hold something."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a query that begins anew would double."""

    topics: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    """Sinks that decide the topic of each record: nobody knows which topics those were."""

    def __len__(self) -> int:
        return len(self.topics) + len(self.tables) + len(self.routes)

    def __str__(self) -> str:
        told = [f"topic {name}" for name in self.topics] + [f"table {path}" for path in self.tables]
        return ", ".join(told + [f"what sink {name} routed" for name in self.routes])

    def check_clearing(self, pipeline: Pipeline, kept: Collection[str]) -> None:
        """PipelineError if a query that goes on would lose something, or if nobody knows what to clear."""
        if self.routes:
            raise PipelineError(
                f"sink {self.routes[0]} decides the topic of each record, so nobody knows which ones to empty:"
                " empty or delete them yourself, then run with --existing keep"
            )
        for name, (kind, where) in written_by(pipeline).items():
            if name in kept and where in (self.topics if kind == TOPIC else self.tables):
                raise PipelineError(
                    f"{kind} {where} is also written by {name}, which does not begin anew: name it too"
                    f" (--fresh {name}), or run with --existing keep"
                )
        if remote := [path for path in self.tables if "://" in path]:
            raise PipelineError(
                f"table {remote[0]} cannot be renamed from here: move it, then run with --existing keep"
            )


@dataclass(frozen=True, slots=True)
class FreshStart:
    """Which queries begin anew, and what is emptied for that."""

    queries: tuple[str, ...] | None = ()
    """Whose checkpoints are forgotten; None for all that there are."""
    topics: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    @staticmethod
    def read(directory: StateDirectory) -> FreshStart | None:
        """The one that a run began and did not finish."""
        told = read_json(directory.path / PLAN)
        if told is None:
            return None
        queries = None if told["queries"] is None else tuple(told["queries"])
        return FreshStart(queries, tuple(told["topics"]), tuple(told["tables"]))

    def perform(self, directory: StateDirectory, pipeline: Pipeline) -> list[str]:
        """Does it, and says what was done, a line each."""
        if self.queries == ():
            return []
        write_json(directory.path / PLAN, asdict(self))
        said = [*_empty_topics(pipeline, self.topics), *_rename_tables(self.tables)]
        groups = _groups_of_batches(pipeline, directory, self.queries)
        identity.forget(directory, self.queries)
        (directory.path / PLAN).unlink()
        _delete_groups(pipeline, groups)
        return said


def plan_fresh_start(
    pipeline: Pipeline, directory: StateDirectory, queries: Collection[str] | None, decide: Decide
) -> FreshStart:
    """For these queries, None for all."""
    there = [name for name in directory.queries() if directory.has_progress(name)]
    forgotten_now = [name for name in there if queries is None or name in queries]
    begun = {sink for name in forgotten_now for sink in sinks_of(name)}
    begun |= _renamed_sinks(pipeline, directory, there, forgotten_now)
    found = _holding_something(pipeline, begun) if begun else Outputs()
    forgotten = None if queries is None else tuple(queries)
    if not found or decide(found) == "keep":
        return FreshStart(forgotten)
    found.check_clearing(pipeline, kept=written_by(pipeline).keys() - begun)
    return FreshStart(forgotten, found.topics, found.tables)


def _renamed_sinks(
    pipeline: Pipeline, directory: StateDirectory, there: Collection[str], forgotten: Collection[str]
) -> set[str]:
    """Sinks without a checkpoint that write what a forgotten query wrote whose sinks are not in the file any more."""
    sinks = {sink.name for sink in pipeline.sinks}
    gone = [name for name in forgotten if sinks.isdisjoint(sinks_of(name))]
    before = identity.outputs_written(directory, gone)
    begun = {sink for name in there for sink in sinks_of(name)}
    return {sink for sink in sinks - begun if before.intersection(outputs_of(pipeline, [sink]))}


def existing_output_warnings(pipeline: Pipeline, sinks: Collection[str]) -> list[str]:
    """A line on the topics and tables that a batch adds to."""
    found = replace(_holding_something(pipeline, sinks), routes=())
    return [f"{found} already hold{'s' if len(found) == 1 else ''} something: a batch adds to it"] if found else []


def refuse_to_decide(found: Outputs) -> Existing:
    """For whoever cannot be asked."""
    raise PipelineError(
        f"{found} would hold everything twice: --existing clear empties topics and renames tables first,"
        " --existing keep writes everything once more"
    )


def _holding_something(pipeline: Pipeline, names: Collection[str]) -> Outputs:
    written = [where for name, where in written_by(pipeline).items() if name in names]
    by_kind = {kind: tuple(dict.fromkeys(at for its, at in written if its == kind)) for kind in (TOPIC, TABLE, ROUTE)}
    with _connect(pipeline) as cluster:
        topics = tuple(topic for topic, ends in _ends(cluster, by_kind[TOPIC]).items() if ends)
    tables = tuple(path for path in by_kind[TABLE] if "://" in path or (Path(path).is_dir() and os.listdir(path)))
    return Outputs(topics, tables, by_kind[ROUTE])


def _ends(cluster: Cluster, topics: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
    """Of those topics that are there, the ends of the partitions that hold something."""
    there = cluster.topics()
    found = {}
    for topic in topics:
        partitions = [TopicPartition(topic, number) for number in there[topic].leaders] if topic in there else []
        begins, ends = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST)), cluster.latest(partitions)
        found[topic] = {where: end for where, end in ends.items() if end > begins[where]}
    return found


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


def _groups_of_batches(pipeline: Pipeline, directory: StateDirectory, queries: Collection[str] | None) -> list[str]:
    """In which exactly-once sinks hold the numbers of their batches; nobody asks for those of a query that is gone."""
    gone = [name for name in directory.queries() if queries is None or name in queries]
    return [f"{pipeline.name}.{sink}-{directory.query_id(name)}" for name in gone for sink in sinks_of(name)]


def _delete_groups(pipeline: Pipeline, groups: Iterable[str]) -> None:
    """As far as they are there, and may be deleted: they do no harm."""
    with suppress(PipelineError), _connect(pipeline) as cluster:
        Groups(cluster, int(TIMEOUT_S * 1000)).delete(groups)


@contextmanager
def _connect(pipeline: Pipeline) -> Iterator[Cluster]:
    assert pipeline.bootstrap is not None
    try:
        with closing(Cluster(pipeline.bootstrap, pipeline.kafka, TIMEOUT_S)) as cluster:
            yield cluster
    except UnusableProperty as error:
        raise PipelineError(f"it is not known what the topics hold: {error}; run with --existing keep") from error
    except KafkaError as error:
        hint = "; a compacted topic cannot be emptied: delete it" if error.code is ErrorCode.POLICY_VIOLATION else ""
        raise PipelineError(f"{error}{hint}") from error
    except (OSError, MalformedData) as error:
        raise PipelineError(str(error)) from error
