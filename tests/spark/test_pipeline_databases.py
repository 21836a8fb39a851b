"""Pipelines that write tables of databases, on real Spark: SQLite stands for all of them, which unit tests write."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from harness.patience import SPARK_PATIENCE_S

from moldau.client.cluster import Cluster
from moldau.pipelines.cases.case import run_case
from moldau.pipelines.cases.files import find_cases
from moldau.pipelines.planning.checking import check
from moldau.pipelines.planning.compiling import Mode
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.fresh_start import FreshStart, plan_fresh_start
from moldau.pipelines.running.launching import RunOptions, launch
from moldau.pipelines.running.progress import RunStatus
from moldau.pipelines.running.silence import Silence
from moldau.pipelines.running.state_directory import default_directory
from moldau.pipelines.running.stop_request import Stop
from moldau.pipelines.running.topics import warnings
from moldau.pipelines.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """\
name: bikes
bootstrap: @BOOTSTRAP@
sources:
  trips:
    topic: @IN@
    schema: bike string not null, n bigint, at timestamp, ends struct<from:string,to:string>, gone boolean
    dead_letter: drop
steps:
  - {name: moves, sql: "select bike, n, at, ends, gone from trips"}
sinks:
  - {name: last, from: moves, database: "sqlite:///out.db", table: last_trip, mode: upsert, keys: [bike],
     delete_when: gone, options: {order_by: n}}
  - {name: every, from: moves, database: "sqlite:///out.db", table: trip, mode: history, keys: [bike],
     options: {order_by: n}, with: all}
  - {name: all, from: moves, database: "sqlite:///out.db", table: log}
"""


COPIED = """\
name: there
bootstrap: {bootstrap}
sources:
  orders: {{database: "sqlite:///shop.db", table: orders, key: id, changes: {{column: seq}}}}
sinks:
  - {{from: orders, topic: {topic}}}
"""
COPIED_BACK = """\
name: back
bootstrap: {bootstrap}
sources:
  orders: {{topic: {topic}, schema: "id bigint not null, seq bigint, note string, ratio double, raw binary"}}
sinks:
  - {{name: files, from: orders, database: "sqlite:///out.db", table: orders, mode: upsert, keys: [id]}}
  - {{name: more, from: orders, database: "duckdb:///out.duckdb", table: orders, mode: upsert, keys: [id]}}
"""


@pytest.fixture
def pipeline(tmp_path: Path, bootstrap: str, topic: Callable[[], str]) -> Pipeline:
    name = topic()
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.replace("@BOOTSTRAP@", bootstrap).replace("@IN@", name).replace(", with: all", ""))
    with closing(Cluster(bootstrap, {})) as cluster:
        cluster.create_topic(name, 2)
    return load(file)


def produce(pipeline: Pipeline, *trips: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    (source,) = pipeline.sources.values()
    for trip in trips:
        producer.produce(source.topics[0], json.dumps(trip).encode(), key=trip["bike"])  # type: ignore[union-attr]
    assert producer.flush(SPARK_PATIENCE_S) == 0


def run(pipeline: Pipeline, spark: SparkSession, **options: Any) -> RunStatus:
    directory = default_directory(pipeline.file, pipeline.name)
    run_options = RunOptions(**{"mode": Mode.UNTIL_CAUGHT_UP} | options)
    return launch(pipeline, directory, run_options, lambda on_phase: spark, Silence(), Stop())


def rows(pipeline: Pipeline, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(pipeline.file.parent / "out.db")) as database:
        return database.execute(query).fetchall()


def test_a_topic_becomes_tables_of_a_database(pipeline: Pipeline, spark: SparkSession) -> None:
    ends = {"from": "a", "to": "b"}
    produce(pipeline, {"bike": "x", "n": 1, "at": "2026-01-01T10:00:00Z", "ends": ends}, {"bike": "y", "n": 1})
    assert run(pipeline, spark).state == "finished"
    assert rows(pipeline, "select bike, n, at, ends from last_trip order by bike") == [
        ("x", 1, "2026-01-01 10:00:00.000000Z", '{"from":"a","to":"b"}'),
        ("y", 1, None, None),
    ]
    produce(pipeline, {"bike": "x", "n": 3}, {"bike": "x", "n": 2}, {"bike": "y", "n": 2, "gone": True})
    assert run(pipeline, spark).state == "finished"
    assert run(pipeline, spark).state == "finished", "there is nothing new"
    assert rows(pipeline, "select bike, n from last_trip") == [("x", 3)]
    assert rows(pipeline, "select bike, n, valid_from, valid_to from trip order by 1, 2") == [
        ("x", 1, 1, 2), ("x", 2, 2, 3), ("x", 3, 3, None), ("y", 1, 1, 2), ("y", 2, 2, None),
    ]  # fmt: skip
    assert rows(pipeline, "select bike, n from log order by 1, 2") == [
        ("x", 1), ("x", 2), ("x", 3), ("y", 1), ("y", 2),
    ]  # fmt: skip
    assert run(pipeline, spark, mode=Mode.BATCH, only=("all",)).state == "finished"
    assert rows(pipeline, "select count(*) from log") == [(10,)], "a batch appends"
    directory = default_directory(pipeline.file, pipeline.name)
    assert not list(directory.path.rglob("*.arrow"))

    with pytest.raises(PipelineError, match="--existing"):
        run(pipeline, spark, fresh=None)
    plan = plan_fresh_start(pipeline, directory, ["all", "last"], lambda outputs: "clear")
    out = f"sqlite:///{pipeline.file.parent}/out.db"
    assert plan == FreshStart(("all", "last"), databases=(f"log in {out}", f"last_trip in {out}"))
    lines = plan.perform(directory, pipeline)
    assert [line.partition(" to ")[0] for line in lines] == [
        f"renamed table log in {out}",
        f"renamed table last_trip in {out}",
    ]
    assert run(pipeline, spark).state == "finished"
    assert rows(pipeline, "select count(*) from log") == [(5,)]
    assert rows(pipeline, "select bike, n from last_trip") == [("x", 3)]


def test_a_row_that_the_database_refuses_ends_the_run_with_one_sentence(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    with closing(sqlite3.connect(pipeline.file.parent / "out.db")) as database:
        database.execute("create table log (bike text, n bigint check (n < 5), at text, ends text, gone boolean)")
        assert [problem for problem in check(pipeline, spark) if problem.severity == "error"] == []
        database.execute("create table trip (bike date, n bigint)")
    found = [problem for problem in check(pipeline, spark) if problem.severity == "error"]
    assert [problem.message for problem in found] == [
        f"sink every: sqlite:///{pipeline.file.parent}/out.db, table trip: the table has no column at DATETIME,"
        " ends JSON, gone BOOLEAN, valid_from INTEGER: add it, leave it out in SQL, or set options: {add_columns: true}"
    ]
    produce(pipeline, {"bike": "x", "n": 1}, {"bike": "x", "n": 7})
    ended = run(pipeline, spark, only=("all",))
    assert ended.state == "failed"
    assert ended.message == (
        f"all: sqlite:///{pipeline.file.parent}/out.db, table log: row 2 of the batch is refused:"
        " CHECK constraint failed: n < 5"
    )
    assert rows(pipeline, "select count(*) from log") == [(0,)]


def test_a_case_writes_no_real_database(pipeline: Pipeline, spark: SparkSession, bootstrap: str) -> None:
    case = pipeline.file.parent / "tests" / "one"
    (case / "input").mkdir(parents=True)
    (case / "expected").mkdir()
    lines = [{"bike": "x", "n": 1, "ends": {"from": "a"}}, {"bike": "x", "n": 2, "gone": False}]
    (case / "input" / "trips.jsonl").write_text("".join(json.dumps({"value": line}) + "\n" for line in lines))
    (case / "expected" / "last.jsonl").write_text('{"bike": "x", "n": 2, "gone": false}\n')
    (case / "expected" / "all.jsonl").write_text(
        '{"bike": "x", "n": 1, "ends": {"from": "a"}}\n{"bike": "x", "n": 2, "gone": false}\n'
    )
    [found] = find_cases(pipeline.file)
    result = run_case(found, pipeline, spark)
    assert result.error is None
    assert result.has_passed, result.differences
    assert not (pipeline.file.parent / "out.db").exists()


def test_changes_that_debezium_writes(
    tmp_path: Path, spark: SparkSession, bootstrap: str, topic: Callable[[], str]
) -> None:
    """The recipe of docs/databases.md."""
    recipe = (Path(__file__).parents[2] / "docs" / "databases.md").read_text().partition("### From Debezium")[2]
    text = recipe.partition("```yaml\n")[2].partition("```")[0]
    name = topic()
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"name: changes\nbootstrap: {bootstrap}\n{text}".replace("shop.public.customers", name))
    with closing(Cluster(bootstrap, {})) as cluster:
        cluster.create_topic(name, 1)
    pipeline = load(file)
    changes = [
        {"op": "r", "before": None, "after": {"id": 1, "name": "Ada"}, "ts_ms": 1},
        {"op": "c", "before": None, "after": {"id": 2, "name": "Bob"}, "ts_ms": 2},
        {"op": "u", "before": {"id": 1}, "after": {"id": 1, "name": "Ada L."}, "ts_ms": 3},
        {"op": "d", "before": {"id": 2}, "after": None, "ts_ms": 4},
    ]
    producer = Producer({"bootstrap.servers": bootstrap})
    for change in changes:
        producer.produce(name, json.dumps({"schema": {}, "payload": change}).encode(), key=b"k")
    producer.produce(name, None, key=b"k")
    assert producer.flush(SPARK_PATIENCE_S) == 0
    assert warnings(pipeline) == []
    ended = run(pipeline, spark)
    assert ended.state == "finished", ended.message
    assert rows(pipeline, "select id, name from customers") == [(1, "Ada L.")]
    resource = ConfigResource("topic", name)
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    )
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(SPARK_PATIENCE_S)
    (line,) = warnings(pipeline)
    assert line.startswith(f"source changes: topic {name} is compacted")
    file.write_text(file.read_text().replace("format: debezium", "format: debezium\n    tombstone: row"))
    assert warnings(load(file)) == []


def test_a_table_becomes_a_topic_and_tables_of_other_databases(
    tmp_path: Path, spark: SparkSession, bootstrap: str, topic: Callable[[], str]
) -> None:
    name = topic()
    there, back = tmp_path / "there.yaml", tmp_path / "back.yaml"
    there.write_text(COPIED.format(bootstrap=bootstrap, topic=name))
    back.write_text(COPIED_BACK.format(bootstrap=bootstrap, topic=name))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("create table orders (id integer primary key, seq integer, note text, ratio real, raw blob)")
        values = [(number, number, f'{number}"\n', number / 7, bytes([number % 256])) for number in range(300)]
        with shop:
            shop.executemany("insert into orders values (?, ?, ?, ?, ?)", values)
        assert run(load(there), spark).state == "finished"
        with shop:
            shop.execute("update orders set seq = seq + 1000, note = null where id % 3 = 0")
            shop.execute("update orders set seq = seq + 2000, ratio = -1.5 where id % 5 = 0")
        for file in (there, back):
            ended = run(load(file), spark)
            assert ended.state == "finished", ended.message
        expected = shop.execute("select * from orders order by id").fetchall()
    with closing(sqlite3.connect(tmp_path / "out.db")) as copy:
        assert copy.execute("select id, seq, note, ratio, raw from orders order by id").fetchall() == expected
    with closing(duckdb.connect(str(tmp_path / "out.duckdb"))) as other:
        assert other.execute("select id, seq, note, ratio, raw from orders order by id").fetchall() == expected
