"""Fresh starts against a real broker: existing outputs are found, cleared or kept; a killed fresh start is finished."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.base.ids import TopicPartition
from moldau.client.admin.groups import Groups
from moldau.client.cluster import EARLIEST, Cluster
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running import fresh_start, identity
from moldau.pipelines.running.fresh_start import PLAN, FreshStart, Outputs, plan_fresh_start, refuse_to_decide
from moldau.pipelines.running.state_directory import StateDirectory, write_json
from moldau.pipelines.spec import Pipeline

CreateTopic = Callable[..., str]
SPEC = """
name: {name}
bootstrap: {bootstrap}
sources:
  events: {{topic: {source}, schema: a int, dead_letter: drop}}
sinks:
  - {{from: events, name: copy, topic: {out}}}
  - {{from: events, name: rows, table: lake/rows, format: parquet}}
  - {{from: events, name: current, table: lake/current, format: delta, mode: upsert, keys: [a]}}
"""


class FinishedRun:
    """A pipeline that has run: its sinks have checkpoints and outputs."""

    def __init__(self, folder: Path, bootstrap: str, create_topic: CreateTopic) -> None:
        self.folder, self.bootstrap, self.out = folder, bootstrap, create_topic(partitions=2)
        self.file = folder / "p.yaml"
        spec = SPEC.format(name=f"p{uuid.uuid4().hex[:8]}", bootstrap=bootstrap, source=create_topic(), out=self.out)
        self.file.write_text(spec)
        self.directory = StateDirectory(folder / "state")
        for query in ("copy", "rows", "current"):
            offsets = self.directory.checkpoint(query) / "offsets"
            offsets.mkdir(parents=True)
            (offsets / "0").write_text("v1")
        for table in ("rows", "current"):
            (folder / "lake" / table).mkdir(parents=True)
            (folder / "lake" / table / "part").write_text("x")
        write_json(self.directory.checkpoint("copy") / "metadata", {"id": "abc"})
        identity.record(self.directory, self.pipeline.name, identity.of_pipeline(self.pipeline), lambda: "id")
        with closing(Cluster(bootstrap, {})) as cluster:
            for group in ("copy", "copy-abc"):  # its position, and its micro-batch ids
                Groups(cluster, 10_000).commit(f"{self.pipeline.name}.{group}", {TopicPartition(self.out, 0): 1})
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(10):
            producer.produce(self.out, str(number), partition=number % 2)
        producer.flush()

    @property
    def pipeline(self) -> Pipeline:
        return load(self.file)

    def change(self, before: str, after: str) -> None:
        self.file.write_text(self.file.read_text().replace(before, after))

    def records(self) -> int:
        places = [TopicPartition(self.out, number) for number in range(2)]
        with closing(Cluster(self.bootstrap, {})) as cluster:
            begins = cluster.list_offsets(dict.fromkeys(places, EARLIEST))
            return sum(end - begins[where] for where, end in cluster.latest(places).items())

    def groups(self) -> list[str]:
        with closing(Cluster(self.bootstrap, {})) as cluster:
            found = Groups(cluster, 10_000).listed()
        return sorted(group.group_id for group in found if group.group_id.startswith(f"{self.pipeline.name}."))

    def tables(self) -> list[str]:
        return sorted(name.partition(".before-")[0] for name in os.listdir(self.folder / "lake"))


@pytest.fixture
def world(tmp_path: Path, bootstrap: str, create_topic: CreateTopic) -> FinishedRun:
    return FinishedRun(tmp_path, bootstrap, create_topic)


def clear(found: Outputs) -> fresh_start.Existing:
    return "clear"


def test_outputs_that_would_be_duplicated_are_named(world: FinishedRun) -> None:
    twice = f"^topic {world.out}, table .*lake/rows would hold everything twice; table .*lake/current would keep rows"
    with pytest.raises(PipelineError, match=f"{twice} whose keys do not come again: --existing clear"):
        plan_fresh_start(world.pipeline, world.directory, None, refuse_to_decide)
    asked: list[Outputs] = []

    def keep(found: Outputs) -> fresh_start.Existing:
        asked.append(found)
        return "keep"

    assert plan_fresh_start(world.pipeline, world.directory, ["copy"], keep) == FreshStart(("copy",))
    assert asked == [Outputs(topics=(world.out,))]


def test_an_upserted_table_is_renamed_or_kept(world: FinishedRun) -> None:
    """Rows whose keys the changed pipeline no longer makes would stay in it for ever."""
    with pytest.raises(PipelineError, match=r"^table .*lake/current would keep rows whose keys do not come again: "):
        plan_fresh_start(world.pipeline, world.directory, ["current"], refuse_to_decide)
    kept = plan_fresh_start(world.pipeline, world.directory, ["current"], lambda outputs: "keep")
    assert kept == FreshStart(("current",))
    cleared = plan_fresh_start(world.pipeline, world.directory, ["current"], clear)
    (line,) = cleared.perform(world.directory, world.pipeline)
    assert line.startswith(f"renamed table {world.folder}/lake/current to {world.folder}/lake/current.before-")
    assert not (world.folder / "lake" / "current").exists()
    assert plan_fresh_start(world.pipeline, world.directory, ["current"], refuse_to_decide) == FreshStart(("current",))


def test_a_table_in_complete_mode_is_kept(world: FinishedRun) -> None:
    world.change("mode: upsert, keys: [a]", "mode: complete")
    assert plan_fresh_start(world.pipeline, world.directory, ["current"], refuse_to_decide) == FreshStart(("current",))


def test_a_sink_that_never_ran_has_no_outputs_to_clear(world: FinishedRun) -> None:
    world.directory.forget("copy")
    assert plan_fresh_start(world.pipeline, world.directory, ["copy"], refuse_to_decide) == FreshStart(("copy",))


def test_topics_are_emptied_and_tables_renamed(world: FinishedRun) -> None:
    lines = plan_fresh_start(world.pipeline, world.directory, None, clear).perform(world.directory, world.pipeline)
    assert [line.partition(" to ")[0] for line in lines] == [
        f"emptied topic {world.out}",
        f"renamed table {world.folder}/lake/rows",
        f"renamed table {world.folder}/lake/current",
    ]
    assert (world.records(), world.directory.queries(), FreshStart.read(world.directory)) == (0, [], None)
    assert world.groups() == [f"{world.pipeline.name}.copy"]
    assert world.tables() == ["current", "rows"]
    assert not (world.folder / "lake" / "rows").exists()


@pytest.mark.parametrize("at", ["_empty_topics", "_rename_tables", "identity.forget"])
def test_a_killed_fresh_start_is_finished_by_the_next_run(
    world: FinishedRun, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_fresh_start(world.pipeline, world.directory, ["copy", "rows"], clear)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(f"moldau.pipelines.running.fresh_start.{at}", killed)
        with pytest.raises(KeyboardInterrupt):
            plan.perform(world.directory, world.pipeline)
    assert "copy" in world.directory.queries()
    unfinished = FreshStart.read(world.directory)
    assert unfinished == plan
    unfinished.perform(world.directory, world.pipeline)
    assert (world.records(), world.directory.queries()) == (0, ["current"])
    assert not (world.directory.path / PLAN).exists()
    assert not (world.folder / "lake" / "rows").exists()


def test_a_topic_of_another_sink_is_not_cleared(world: FinishedRun) -> None:
    world.change("sinks:\n", f"sinks:\n  - {{from: events, name: other, topic: {world.out}}}\n")
    with pytest.raises(
        PipelineError, match=f"topic {world.out} is also written by other, which does not start from scratch"
    ):
        plan_fresh_start(world.pipeline, world.directory, ["copy"], clear)


def test_a_renamed_sink_clears_the_outputs_of_its_old_name(world: FinishedRun) -> None:
    world.change("name: copy", "name: twin")
    assert plan_fresh_start(world.pipeline, world.directory, ["copy"], clear) == FreshStart(("copy",), (world.out,), ())
    offsets = world.directory.checkpoint("twin") / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1")
    assert plan_fresh_start(world.pipeline, world.directory, ["copy"], clear) == FreshStart(("copy",)), (
        "another sink writes the topic now"
    )


def test_a_renamed_pipeline_clears_the_outputs_of_its_old_name(world: FinishedRun) -> None:
    """A name selects the state directory: that of the new name has no checkpoints."""
    world.directory.write_status({"file": str(world.file)})
    world.change("name: p", "name: q")
    renamed = StateDirectory(world.folder / "renamed")
    with pytest.raises(PipelineError, match=f"^topic {world.out} would hold everything twice"):
        plan_fresh_start(world.pipeline, renamed, ["copy"], refuse_to_decide)
    tables = tuple(str(world.folder / "lake" / name) for name in ("rows", "current"))
    assert plan_fresh_start(world.pipeline, renamed, None, clear) == FreshStart(None, (world.out,), tables)


def test_routed_topics_must_be_cleared_by_the_user(world: FinishedRun) -> None:
    world.change(f"topic: {world.out}}}", "route: a}")
    with pytest.raises(PipelineError, match="sink copy decides the topic of each record"):
        plan_fresh_start(world.pipeline, world.directory, ["copy"], clear)


def test_a_compacted_topic_that_cannot_be_emptied_is_reported(world: FinishedRun) -> None:
    """Kafka refuses DeleteRecords for a compacted topic."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    compacted = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, world.out, incremental_configs=[compacted])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    with pytest.raises(PipelineError, match="compacted topic cannot be emptied: delete it"):
        plan_fresh_start(world.pipeline, world.directory, ["copy"], clear).perform(world.directory, world.pipeline)
    assert "copy" in world.directory.queries()
