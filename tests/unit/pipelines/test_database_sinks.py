"""Sinks that write tables of databases: as they are read, drawn, named and kept secret, without Spark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from moldau.pipelines.drawing.graph import graph
from moldau.pipelines.problems import InvalidPipeline, PipelineError
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running import fresh_start
from moldau.pipelines.running.failures import Kind, failure_of
from moldau.pipelines.running.outputs import appended_by, merged_by, outputs_of
from moldau.pipelines.spec import DatabaseSink, Pipeline

FILE = """\
name: bikes
sources:
  trips: {topic: trips, schema: "bike string, n bigint"}
sinks:
"""
URL = "postgresql://shop:hush%2Fhush@db:5432/shop"


def pipeline(folder: Path, *sinks: str, connects: bool = True, **environ: str) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(FILE + "".join(f"  - {{from: trips, {sink}}}\n" for sink in sinks))
    return load(file, environ=environ, connects=connects)


def sink_of(loaded: Pipeline) -> DatabaseSink:
    [sink] = loaded.sinks
    assert isinstance(sink, DatabaseSink)
    return sink


def test_a_sink_is_read(tmp_path: Path) -> None:
    loaded = pipeline(
        tmp_path, f'database: "{URL}", table: s.last, mode: upsert, keys: [bike], options: {{ORDER_BY: n}}'
    )
    sink = sink_of(loaded)
    assert (sink.name, sink.table, sink.mode, sink.keys) == ("trips-to-last", "s.last", "upsert", ("bike",))
    assert sink.options == {"order_by": "n"}
    assert sink.output == "s.last in postgresql://db:5432/shop"
    assert merged_by(loaded) == {"trips-to-last": "s.last in postgresql://db:5432/shop"}
    assert appended_by(loaded).keys() == {"trips.dead-letters"}


def test_a_file_is_relative_to_the_pipeline(tmp_path: Path) -> None:
    loaded = pipeline(tmp_path, 'database: "sqlite:///out.db", table: log')
    assert sink_of(loaded).database == f"sqlite:///{tmp_path}/out.db"
    assert outputs_of(loaded, ["trips-to-log"]) == [f"table log in sqlite:///{tmp_path}/out.db"]
    node = graph(loaded).nodes[-1]
    assert (node.title, node.lines) == ("log", ("sqlite out.db", "append"))


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ('database: "oracle://h/x", table: t', "the URL of the database cannot be used: oracle is not a known kind"),
        ('database: "sqlite:///x.db"', "missing key 'table'"),
        ('database: "sqlite:///x.db", table: a.b.c', "'a.b.c' is not a table: write its name, or schema.name"),
        ('database: "sqlite:///x.db", table: t, mode: complete', "'complete' is not a mode of a database's table"),
        ('database: "sqlite:///x.db", table: t, mode: upsert', "mode upsert needs 'keys'"),
        ('database: "sqlite:///x.db", table: t, mode: history, keys: [bike]', "needs the option 'order_by'"),
        ('database: "sqlite:///x.db", table: t, keys: [bike]', "'keys' is for 'mode: upsert' and 'mode: history'"),
        ('database: "sqlite:///x.db", table: t, topic: x', "'topic' does not go with 'database'"),
        ('database: "sqlite:///x.db", table: t, format: delta', "'format' does not go with 'database'"),
        ('database: "sqlite:///x.db", table: t, options: {order_bi: n}', "there is no option 'order_bi'"),
    ],
)
def test_what_is_refused(tmp_path: Path, sink: str, message: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        pipeline(tmp_path, sink)
    assert message in str(refused.value)


def test_two_sinks_write_one_table_only_if_both_append(tmp_path: Path) -> None:
    one = 'name: one, database: "sqlite:///x.db", table: t'
    pipeline(tmp_path, one, 'name: two, database: "sqlite:///./x.db", table: t')
    with pytest.raises(InvalidPipeline, match="it writes to the table of sink 'one'"):
        pipeline(
            tmp_path, one, f'name: two, database: "sqlite:///{tmp_path}/x.db", table: t, mode: upsert, keys: [bike]'
        )


def test_nobody_sees_the_password(tmp_path: Path) -> None:
    loaded = pipeline(tmp_path, f'database: "{URL}", table: t')
    assert "hush" not in repr(loaded)
    assert loaded.masked(f"{URL} hush/hush") == "postgresql://shop:********@db:5432/shop ********"
    with pytest.raises(InvalidPipeline) as refused:
        pipeline(tmp_path, f'database: "{URL}", table: t, mode: wrong')
    assert "hush" not in refused.value.render()
    with pytest.raises(InvalidPipeline) as refused:
        pipeline(tmp_path, 'database: "postgresql://shop:hu/sh@db", table: t')
    assert "hu/sh" not in refused.value.render()


def test_commands_that_do_not_connect_need_no_password(tmp_path: Path) -> None:
    url = 'database: "postgresql://shop:${env:PW}@db/shop", table: t'
    assert sink_of(pipeline(tmp_path, url, connects=False)).address == "postgresql://db:5432/shop"
    assert sink_of(pipeline(tmp_path, url, PW="x")).database == "postgresql://shop:x@db/shop"
    with pytest.raises(InvalidPipeline, match="PW"):
        pipeline(tmp_path, url)
    whole = pipeline(tmp_path, 'database: "${env:URL}", table: t', connects=False)
    assert sink_of(whole).address == "database"
    assert graph(whole).nodes[-1].lines[0] == "database"


def test_a_fresh_start_renames_tables_in_the_database(tmp_path: Path) -> None:
    loaded = pipeline(tmp_path, 'database: "sqlite:///out.db", table: log', f'database: "{URL}", table: t')
    output = f"log in sqlite:///{tmp_path}/out.db"
    assert fresh_start._nonempty_in_databases(loaded, [output]) == ()
    with closing(sqlite3.connect(tmp_path / "out.db")) as database, database:
        database.execute("create table log (x)")
        assert fresh_start._nonempty_in_databases(loaded, [output]) == ()
        database.execute("insert into log values (1)")
    assert fresh_start._nonempty_in_databases(loaded, [output]) == (output,)
    [line] = fresh_start._rename_in_databases(loaded, [output])
    assert line.startswith(f"renamed table {output} to log_before_2")
    assert list(fresh_start._rename_in_databases(loaded, [output])) == [], "a killed run is finished by the next one"
    (tmp_path / "out.db").write_text("no database" * 1000)
    with pytest.raises(PipelineError, match="file is not a database"):
        fresh_start._nonempty_in_databases(loaded, [output])


@pytest.mark.parametrize(
    ("error", "kind"),
    [("DatabaseUnavailable", Kind.RETRIABLE), ("DatabaseRefused", Kind.LASTING), ("RowRefused", Kind.LASTING)],
)
def test_failures_of_databases(error: str, kind: Kind) -> None:
    trace = (
        f'Traceback (most recent call last):\n  File "x.py", line 1, in f\nmoldau.databases.errors.{error}: x: why\n'
    )
    failure = failure_of(f"[FOREACH_BATCH_USER_FUNCTION_ERROR] {trace}")
    assert (failure.kind, failure.message) == (kind, "x: why")
