"""Debezium's envelopes as a source: what each becomes, and which records are bad."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.planning.compiling import Compiled, Mode, compile_pipeline
from moldau.pipelines.planning.debezium import BASE64_DECIMAL
from moldau.pipelines.reading.loading import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from moldau.pipelines.spec import TopicSource

PIPELINE = """
    name: tested
    bootstrap: localhost:1
    sources:
      orders:
        topic: in
        format: debezium
        schema: >-
          id bigint not null, name string, total decimal(10,2), day date, at timestamp, local timestamp_ntz, raw binary
        {more}
    sinks:
      - {{name: rows, from: orders, topic: rows}}
      - {{name: envelopes, from: orders, topic: envelopes, format: debezium}}
"""
SOURCE = {"version": "3.2.0.Final", "connector": "postgresql", "lsn": 240, "txId": 7, "table": "orders"}
COLUMNS = ("id", "name", "total", "day", "at", "local", "raw")
AT = datetime(2026, 1, 31, 8, 0, 0, 250_000)
MICROS = int(AT.replace(tzinfo=UTC).timestamp()) * 1_000_000 + 250_000
FULL: dict[str, Any] = {
    "id": 1, "name": "Ana", "total": "9.50", "day": 20_484, "at": "2026-01-31T08:00:00.25Z",
    "local": MICROS, "raw": "AQI=",
}  # fmt: skip
FULL_ROW = (1, "Ana", Decimal("9.50"), date(2026, 1, 31), AT, AT, b"\x01\x02")


def envelope(op: Any = "c", before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1_700_000_000_000, **more}


def compiled(
    spark: SparkSession, folder: Path, values: list[Any], more: str = "", keys: Sequence[str] | None = None
) -> Compiled:
    """As a batch, with these values as the records of the topic."""
    file = folder / "pipeline.yaml"
    file.write_text(dedent(PIPELINE.format(more=more)))
    encoded = [None if each is None else json.dumps(each).encode() for each in values]

    def records(session: SparkSession, source: TopicSource) -> DataFrame:
        of_records = keys or [f"k{offset}" for offset in range(len(values))]
        rows = [
            (key.encode(), value, offset) for offset, (key, value) in enumerate(zip(of_records, encoded, strict=True))
        ]
        return session.createDataFrame(rows, "key binary, value binary, offset bigint").selectExpr(
            "key", "value", "'in' as topic", "1 as partition", "offset", "timestamp_seconds(offset) as timestamp"
        )

    return compile_pipeline(load(file), spark, Mode.BATCH, records=records)


def rows_of(of: Compiled, name: str) -> list[Row]:
    (flow,) = [flow for flow in of.flows if flow.name == name]
    return flow.frame.collect()


def reasons(of: Compiled) -> dict[int, str]:
    """Why records are bad, by offset."""
    rows = rows_of(of, "orders.dead-letters")
    headers = [{pair.key: bytes(pair.value).decode() for pair in row.headers} for row in rows]
    return {int(each["moldau.offset"]): each["moldau.error"] for each in headers}


GOOD: list[Any] = [
    envelope("r", after=FULL),
    {"schema": {"type": "struct"}, "payload": envelope("u", before={"id": 1}, after=FULL | {"at": MICROS})},
    envelope("d", before={"id": 1}),
    None,
    envelope("t"),
]
BAD: Mapping[str, tuple[Any, str]] = {
    "no envelope": ({"id": 1}, "no change of a row: field op is missing"),
    "message of the log": (envelope("m"), 'no change of a row: op is "m"'),
    "no after": (envelope("u", before={"id": 1}), 'op is "u", but field after is missing'),
    "no before": (envelope("d", after={"id": 1}), 'op is "d", but field before is missing'),
    "no id": (envelope(after={"name": "Ana"}), "field after.id is missing"),
    "no id in a payload": ({"payload": envelope(after={"name": "Ana"})}, "field payload.after.id is missing"),
    "text for a number": (envelope(after={"id": "x"}), 'field after.id: "x" is not a bigint'),
    "no time": (envelope(after={"id": 1, "at": "noon"}), 'field after.at: "noon" is not a timestamp'),
    "no time after a good one": (
        envelope(after={"id": 1, "day": 1, "at": "2026-01-31T08:00:00Z", "local": "noon"}),
        'field after.local: "noon" is not a timestamp_ntz',
    ),
    "no number": (envelope(after={"id": 1, "local": 1.5}), "field after.local: 1.5 is not a timestamp_ntz"),
    "year 33,000": (envelope(after={"id": 1, "local": 10**18 - 1}), "is not in the years 1 to 9999"),
    "day beyond 9999": (envelope(after={"id": 1, "day": 2_999_999}), "day: 2999999 is not in the years 1 to 9999"),
    "decimal in base64": (envelope(after={"id": 1, "total": "BNI="}), '"BNI=" is not a decimal(10,2)'),
    "decimal in base64 like a number": (
        {"schema": {"name": BASE64_DECIMAL}, "payload": envelope(after={"id": 1, "total": "1234"})},
        "its decimals are bytes in base64: set decimal.handling.mode=string in Debezium",
    ),
    "array": ([], "not a JSON object but an array"),
    "payload is no object": ({"payload": 5}, "field payload: 5 is not an object"),
}  # fmt: skip


@pytest.fixture(scope="module")
def of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    values = [*GOOD, *(value for value, _ in BAD.values())]
    keys = [f"k{offset:02}" for offset in range(len(values))]
    return compiled(spark, tmp_path_factory.mktemp("debezium"), values, keys=keys)


def test_envelopes_with_and_without_schemas_become_changes(of: Compiled) -> None:
    found = sorted(of.views["orders"].collect(), key=lambda row: row["_key"])
    nothing = (None,) * (len(COLUMNS) - 1)
    assert [(row["_op"], *(row[name] for name in COLUMNS)) for row in found] == [
        ("r", *FULL_ROW),
        ("u", *FULL_ROW),
        ("d", 1, *nothing),
        ("t", None, *nothing),
    ]
    assert [row["_key"] for row in found] == ["k00", "k01", "k02", "k04"]
    assert [row["_before"] and row["_before"]["id"] for row in found] == [None, 1, 1, None]
    assert {(row["_lsn"], row["_xid"], row["_ts_ms"]) for row in found} == {(240, 7, 1_700_000_000_000)}


def test_what_is_no_change_is_a_bad_record(of: Compiled) -> None:
    found = reasons(of)
    for offset, (name, (_, expected)) in enumerate(BAD.items(), len(GOOD)):
        assert expected in found[offset], name
    assert len(found) == len(BAD)


def test_numbers_are_times_in_the_chosen_unit(spark: SparkSession, tmp_path: Path) -> None:
    values = [envelope(after=FULL | {"at": MICROS // 1000, "local": MICROS // 1000, "day": "2026-01-31"})]
    (row,) = compiled(spark, tmp_path, values, "options: {times: millis}").views["orders"].select(*COLUMNS).collect()
    assert tuple(row) == FULL_ROW


def test_tombstones_are_deletions_by_choice(spark: SparkSession, tmp_path: Path) -> None:
    """Of a compacted topic only they are left of a deletion."""
    keys = ['{"id": 1}', '{"payload": {"id": 2, "day": 20484}}', "k", '{"name": null}', '{"id": 3}']
    values = [None, None, None, None, envelope(after=FULL)]
    of = compiled(spark, tmp_path, values, "tombstone: row", keys)
    rows = {row["_key"]: row for row in of.views["orders"].collect()}
    first, second = rows.pop(keys[0]), rows.pop(keys[1])
    assert (first["_op"], first["id"], first["name"], first["_lsn"]) == ("d", 1, None, None)
    assert (second["_op"], second["id"], second["day"], second["_before"]["id"]) == ("d", 2, date(2026, 1, 31), 2)
    assert [row["_op"] for row in rows.values()] == ["c"]
    assert reasons(of) == dict.fromkeys((2, 3), "a tombstone whose key has no column of the schema")
    assert [row["value"] for row in rows_of(of, "rows")][:2] == [None, None]


def test_changes_go_on_to_topics_as_those_of_a_database(of: Compiled, spark: SparkSession, tmp_path: Path) -> None:
    rows = {row["key"]: row["value"] for row in rows_of(of, "rows")}
    assert json.loads(rows["k00"])["local"] == "2026-01-31T08:00:00.250000"
    assert rows["k02"] is None, "a tombstone for a deleted row"
    assert rows.keys() == {"k00", "k01", "k02"}, "a truncation has no row"
    written = [None if row["value"] is None else json.loads(row["value"]) for row in rows_of(of, "envelopes")]
    assert [each and each["op"] for each in written] == ["r", "u", "d", None, "t"]
    assert compiled(spark, tmp_path, written).views["orders"].count() == 4, "what is written can be read"
