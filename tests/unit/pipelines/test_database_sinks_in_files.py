"""Databases in a pipeline file: keys, passwords, test cases, the graph, and warnings about replication slots."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from moldau.databases.changes.postgresql import SlotState
from moldau.pipelines.cases.changes import staged_changes
from moldau.pipelines.cases.files import BadCase
from moldau.pipelines.database_changes import address_of, change_options
from moldau.pipelines.drawing.graph import graph
from moldau.pipelines.problems import InvalidPipeline, render
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.database_watch import WatchedSlot, lags_of, warnings_of
from moldau.pipelines.running.ends import SlotLag
from moldau.pipelines.running.failures import Kind, failure_of
from moldau.pipelines.running.identity import of_pipeline
from moldau.pipelines.spec import DatabaseSource, Pipeline

GIB = 1 << 30
SOURCE = "database: postgresql://me:se%20cret@h:5433/shop, table: orders, changes: true"


def pipeline_with(folder: Path, source: str, sink: str = "{from: orders, topic: t}") -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(
        dedent(f"""
        name: shop
        sources:
          orders: {{{source}}}
        sinks:
          - {sink}
    """)
    )
    return load(file)


def source_with(folder: Path, source: str) -> DatabaseSource:
    read = pipeline_with(folder, source).sources["orders"]
    assert isinstance(read, DatabaseSource)
    return read


def test_a_database_and_its_password(tmp_path: Path) -> None:
    pipeline = pipeline_with(tmp_path, SOURCE, "{from: orders, topic: t, format: debezium}")
    source = pipeline.sources["orders"]
    assert isinstance(source, DatabaseSource)
    assert (source.url, source.table) == ("postgresql://me@h:5433/shop", "public.orders")
    assert address_of(source).password == "se cret"
    assert "cret" not in repr(pipeline)
    assert pipeline.masked("a se cret, se%20cret") == "a ********, ********"
    options = change_options(pipeline, source, state=tmp_path / "state")
    assert "cret" not in repr(options)
    assert [name for name, value in options.to_spark().items() if "cret" in value] == ["password"]
    assert of_pipeline(pipeline)["orders-to-t"].sources == {"orders": ["changes of h:5433/shop public.orders"]}
    node = next(node for node in graph(pipeline).nodes if node.id == "source.orders")
    assert node.lines == ("table orders", "changes")


def test_sqlite_is_beside_the_file(tmp_path: Path) -> None:
    source = source_with(tmp_path, "database: 'sqlite:///my%20shop.db', table: t, key: id, changes: {column: n}")
    assert address_of(source).path == str(tmp_path / "my shop.db")
    assert (source.growing, source.key) == ("n", ("id",))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("database: postgresql://me:secret@h/shop, table: orders", "read as the stream of its changes"),
        ("database: mysql://me:secret@h/shop, table: orders, changes: true", "only of postgresql and sqlite"),
        ("database: postgresql://me:secret@h/shop, changes: true", "missing key 'table'"),
        ("database: postgresql://me:secret@h/shop, table: a, changes: {column: n}", "come from its log"),
        ("database: sqlite:///a.db, table: a, changes: true", "SQLite has no log of changes"),
        ("database: sqlite:///a.db, table: a, changes: {column: n}", "'key' is missing"),
        ("database: postgresql://me:secret@h/shop, table: a, changes: true, start: latest", "not for databases"),
        ("database: postgresql://me:secret@h/shop, table: a, changes: true, truncate: no", "not a truncate"),
    ],
)
def test_wrong_sources(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        pipeline_with(tmp_path, source)
    shown = "\n".join(map(render, refused.value.problems))
    assert message in shown
    assert "secret" not in shown


def test_changes_of_a_test_case(tmp_path: Path) -> None:
    source = source_with(tmp_path, f"{SOURCE}, schema: 'id bigint, total double', key: id")
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 1, "total": 2}\n\n{"_op": "d", "id": 1, "_before": {"id": 1}}\n')
    staged = staged_changes(source, file, tmp_path / "staged")
    rows = [json.loads(line) for line in (tmp_path / "staged" / "changes.jsonl").read_text().splitlines()]
    assert [(row["_op"], row["_key"], row["_lsn"]) for row in rows] == [("c", '{"id":1}', 1), ("d", '{"id":1}', 3)]
    assert staged.watch
    assert "_before struct<id bigint, total double>" in (staged.schema or "")
    file.write_text('{"_op": "x"}\n')
    with pytest.raises(BadCase, match=r"orders\.jsonl:1: .* _op is one of"):
        staged_changes(source, file, tmp_path / "again")
    with pytest.raises(BadCase, match="give it `schema` and `key`"):
        staged_changes(source_with(tmp_path, SOURCE), file, tmp_path / "more")


def state(retained: int, status: str = "reserved", safe: int | None = None) -> dict[str, WatchedSlot]:
    return {"s": WatchedSlot("h/shop", SlotState("s", 0, retained, retained // 2, status, safe, True), "orders")}


def test_warnings_about_slots() -> None:
    told: dict[str, SlotState] = {}
    assert list(warnings_of(state(GIB - 1), told)) == []
    assert list(warnings_of(state(GIB), told)) == [
        "database h/shop keeps 1 GiB of its log for slot s, which its disk must hold: the query is behind"
    ]
    assert list(warnings_of(state(2 * GIB - 1), told)) == [], "it has been said"
    assert len(list(warnings_of(state(2 * GIB), told))) == 1
    assert list(warnings_of(state(0), told)) == []
    assert list(warnings_of(state(1 << 20, "reserved", 300 << 20), told)) == [], "a low limit is not yet near"
    (line,) = warnings_of(state(400 << 20, "extended", 300 << 20), told)
    assert line.endswith("gives up the slot after 300 MiB more (max_slot_wal_keep_size)")
    assert list(warnings_of(state(500 << 20, "extended", 200 << 20), told)) == [], "it has been said"
    (line,) = warnings_of(state(550 << 20, "extended", 150 << 20), told)
    assert "after 150 MiB more" in line, "the rest has halved"
    (line,) = warnings_of(state(700 << 20, "unreserved", -1), told)
    assert "after 0 bytes more" in line
    assert list(warnings_of(state(701 << 20, "unreserved", -2), told)) == []
    (line,) = warnings_of(state(702 << 20, "lost"), told)
    assert "has dropped what was not read yet" in line
    assert lags_of(state(GIB)) == {"s": SlotLag("orders", GIB // 2)}


def test_a_slot_that_is_behind_is_told_again_when_its_limit_is_near() -> None:
    told: dict[str, SlotState] = {}
    (line,) = warnings_of(state(5 * GIB, "extended", 4 * GIB), told)
    assert "the query is behind" in line
    (line,) = warnings_of(state(8 * GIB, "extended", GIB - 1), told)
    assert "gives up the slot after" in line


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("moldau.databases.changes.errors.ChangesLost", Kind.LASTING),
        ("moldau.databases.changes.errors.ChangesRefused", Kind.LASTING),
        ("moldau.databases.changes.errors.TableChanged", Kind.UNKNOWN),
        ("ConnectionError", Kind.RETRIABLE),
    ],
)
def test_what_a_run_does_about_errors(name: str, kind: Kind) -> None:
    """A query whose failure is unknown is planned again: then it has the new columns."""
    failure = failure_of(f"Failed when reading Python data source moldau-changes: {name}: table t has a new column x")
    assert failure.kind is kind
    assert failure.message.endswith("table t has a new column x")
