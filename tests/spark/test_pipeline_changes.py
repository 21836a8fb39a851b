"""A table of a real PostgreSQL becomes topics (rows with tombstones, and Debezium's envelopes), and tables again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
from committed_records import committed_records
from harness.postgresql import PASSWORD, postgresql, why_none

from moldau.pipelines.planning.compiling import Mode, compile_pipeline
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.launching import RunOptions, launch
from moldau.pipelines.running.silence import Silence
from moldau.pipelines.running.state_directory import StateDirectory
from moldau.pipelines.running.stop_request import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(why_none() is not None, reason=why_none() or "")
PIPELINE = """
    name: mirror
    bootstrap: {bootstrap}
    sources:
      orders: {{database: "{url}", table: orders, changes: true}}
      notes: {{database: "sqlite:///notes.db", table: notes, key: id, changes: {{column: id}}}}
    sinks:
      - {{name: rows, from: orders, topic: {rows}, partitions: 1}}
      - {{name: envelopes, from: orders, topic: {envelopes}, format: debezium, partitions: 1, with: rows}}
      - {{name: notes, from: notes, topic: {notes}, partitions: 1}}
"""
BACK = """
    name: back
    bootstrap: {bootstrap}
    sources:
      rows:
        {{topic: {rows}, schema: "id bigint not null, total decimal(10,2), at timestamp, note string", tombstone: row}}
      envelopes:
        topic: {envelopes}
        format: debezium
        schema: "id bigint not null, total decimal(10,2), at timestamp, note string"
    steps:
      - name: with_key
        sql: "select cast(get_json_object(_key, '$.id') as bigint) as id, total, at, note, id is null as gone from rows"
      - {{name: changed, sql: "select id, total, at, note, _op = 'd' as gone from envelopes"}}
    sinks:
      - {{name: rows, from: with_key, database: "{url}", table: rows, mode: upsert, keys: [id], delete_when: gone}}
      - {{name: envelopes, from: changed, database: "{url}", table: envelopes, mode: upsert, keys: [id],
         delete_when: gone}}
"""
Record = tuple[Any, Any]


def test_a_table_becomes_topics(spark: SparkSession, tmp_path: Path, bootstrap: str, topic: Callable[[], str]) -> None:
    rows, envelopes, notes = topic(), topic(), topic()
    with closing(sqlite3.connect(tmp_path / "notes.db")) as connection, connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, note TEXT)")
        connection.execute("INSERT INTO notes VALUES (1, 'first')")
    state = StateDirectory(tmp_path / "state")
    with postgresql(tmp_path) as server:
        server.query("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(10, 2), at timestamptz)")
        server.query("INSERT INTO orders VALUES (1, 9.50, '2026-01-31 08:00:00+01')")
        file, back = tmp_path / "pipeline.yaml", tmp_path / "back.yaml"
        names = {"bootstrap": bootstrap, "url": server.url, "rows": rows, "envelopes": envelopes, "notes": notes}
        file.write_text(dedent(PIPELINE.format(**names)))
        back.write_text(dedent(BACK.format(**names)))

        def run(file: Path = file, state: StateDirectory = state, **more: Any) -> None:
            options = RunOptions(mode=Mode.UNTIL_CAUGHT_UP, **more)
            ended = launch(load(file), state, options, lambda on_phase: spark, Silence(), Stop())
            assert ended.state == "finished", ended.message

        run()
        server.query("UPDATE orders SET total = 10 WHERE id = 1")
        server.query("UPDATE orders SET id = 2")
        server.query("ALTER TABLE orders ADD COLUMN note text")
        server.query("INSERT INTO orders VALUES (3, 1, NULL, 'new')")
        server.query("DELETE FROM orders WHERE id = 2")
        run()
        run(back, StateDirectory(tmp_path / "back"))
        tables = [server.query(f"SELECT id, total, at, note FROM {name}") for name in ("orders", "rows", "envelopes")]
        slots = server.query("SELECT slot_name FROM pg_replication_slots")
        batch = compile_pipeline(load(file), spark, Mode.BATCH).views["orders"].collect()
        copied = records(bootstrap, rows), records(bootstrap, envelopes)
        run(fresh=None, decide=lambda outputs: "keep")
        new_slots = server.query("SELECT slot_name FROM pg_replication_slots")
    assert tables == [[(3, 1, None, "new")]] * 3, "both topics make the table again"
    assert [(row["_op"], row["_key"], row["note"]) for row in batch] == [("r", '{"id":3}', "new")]
    assert len(new_slots) == 1
    assert new_slots != slots, "a fresh start has a slot of its own, and drops the old one"
    at = "2026-01-31T07:00:00.000000Z"
    assert copied[0] == [
        ({"id": 1}, {"id": 1, "total": 9.5, "at": at}),
        ({"id": 1}, {"id": 1, "total": 10.0, "at": at}),
        ({"id": 1}, None),
        ({"id": 2}, {"id": 2, "total": 10.0, "at": at}),
        ({"id": 3}, {"id": 3, "total": 1.0, "note": "new"}),
        ({"id": 2}, None),
    ]
    changes = [(key, envelope_parts(value)) for key, value in copied[1]]
    assert [(key["id"], op) for key, (op, _, _) in changes] == [
        (1, "r"), (1, "u"), (1, "d"), (1, None), (2, "c"), (3, "c"), (2, "d"), (2, None),
    ]  # fmt: skip
    assert changes[0][1] == ("r", None, {"id": 1, "total": 9.5, "at": at})
    assert changes[6][1] == ("d", {"id": 2, "total": None, "at": None, "note": None}, None)
    assert records(bootstrap, notes)[0] == ({"id": 1}, {"id": 1, "note": "first"})
    assert len(slots) == 1, "the slot stays for the next run, and only that"
    left = b"".join(path.read_bytes() for path in state.path.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in left
    assert PASSWORD.replace(" ", "%20").encode() not in left


def records(bootstrap: str, topic: str) -> list[Record]:
    return [(_parsed(message.key()), _parsed(message.value())) for message in committed_records(bootstrap, topic)]


def _parsed(content: bytes | None) -> Any:
    return None if content is None else json.loads(content)


def envelope_parts(value: Mapping[str, Any] | None) -> tuple[Any, Any, Any]:
    if value is None:
        return None, None, None
    source = value["source"]
    assert (source["db"], source["schema"], source["table"]) == ("postgres", "public", "orders")
    return value["op"], value["before"], value["after"]
