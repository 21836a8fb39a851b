"""Flows as streaming queries against a real broker: upserts, overwriting, deduplication, dead letters, resuming."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from harness.patience import SPARK_PATIENCE_S

from moldau.pipelines.planning.compiling import Mode, compile_pipeline, start
from moldau.pipelines.reading.loading import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIPELINE = """
    name: streams
    bootstrap: {bootstrap}
    spark: {{spark.sql.shuffle.partitions: 1, spark.sql.streaming.noDataMicroBatches.enabled: false}}
    sources:
      changes:
        topic: {topic}
        schema: id string not null, op string, n int, at timestamp
        watermark: {{column: at, delay: 1 hour}}
        deduplicate: [id, n]
        dead_letter: {dead}
      latest: {{topic: {topic}, schema: id string not null, tombstone: row, dead_letter: drop}}
    steps:
      - {{name: totals, sql: "select op, sum(n) as total from changes group by op"}}
      - {{name: changed, sql: "select id, op, n from changes"}}
    sinks:
      - name: current
        from: changed
        table: current
        format: delta
        mode: upsert
        keys: [id]
        delete_when: op = 'd'
        options: {{order_by: n}}
      - name: latest
        from: latest
        table: latest
        format: delta
        mode: upsert
        keys: [_key]
        delete_when: id is null
      - {{name: totals, from: totals, table: totals, format: parquet, mode: complete}}
"""


Produce = Callable[[str, Sequence[bytes | None]], None]


@pytest.fixture
def produce(bootstrap: str) -> Produce:
    producer = Producer({"bootstrap.servers": bootstrap})

    def produce(topic: str, values: Sequence[bytes | None]) -> None:
        for value in values:
            producer.produce(topic, value, key=b"k")
        assert producer.flush(SPARK_PATIENCE_S) == 0

    return produce


def change(id_: str, op: str, n: int) -> bytes:
    return json.dumps({"id": id_, "op": op, "n": n, "at": f"2026-01-31T08:00:0{n}Z"}).encode()


def test_tables_follow_a_topic_over_a_restart(
    spark: SparkSession,
    tmp_path: Path,
    bootstrap: str,
    create_topic: Callable[[int], str],
    produce: Produce,
) -> None:
    topic, dead = create_topic(1), create_topic(1)
    file = tmp_path / "pipeline.yaml"
    file.write_text(dedent(PIPELINE).format(bootstrap=bootstrap, topic=topic, dead=dead))

    def catch_up() -> None:
        compiled = compile_pipeline(load(file), spark, Mode.UNTIL_CAUGHT_UP)
        for flow in compiled.flows:
            query = start(flow, tmp_path / "state" / flow.name, until_caught_up=True)
            assert query.awaitTermination(SPARK_PATIENCE_S)
            assert query.exception() is None

    def table(name: str, format_: str) -> DataFrame:
        read = spark.read.format("moldau-lake").option("path", str(tmp_path / name)).option("format", format_)
        return read.load()

    def content() -> tuple[set[tuple[str, int]], dict[str, int]]:
        current = {(row.id, row.n) for row in table("current", "delta").collect()}
        return current, {row.op: row.total for row in table("totals", "parquet").collect()}

    produce(topic, [change("a", "i", 1), change("b", "i", 2), change("a", "i", 1), b"bad", change("a", "u", 3)])
    catch_up()
    assert content() == ({("a", 3), ("b", 2)}, {"i": 3, "u": 3})
    assert [(row._key, row.id) for row in table("latest", "delta").collect()] == [("k", "a")]
    produce(topic, [change("b", "d", 4), change("c", "i", 5), change("a", "u", 3), b"{}", None])
    catch_up()
    assert content() == ({("a", 3), ("c", 5)}, {"i": 8, "u": 3, "d": 4})
    assert table("latest", "delta").count() == 0, "the null value deletes its key"
    records = spark.read.format("moldau").option("kafka.bootstrap.servers", bootstrap).option("subscribe", dead)
    letters = records.option("includeHeaders", "true").load().orderBy("offset").collect()
    assert [letter.value and bytes(letter.value) for letter in letters] == [b"bad", b"{}", None]
    assert bytes(letters[0].key) == b"k"
    headers = {pair.key: bytes(pair.value).decode() for pair in letters[1].headers}
    assert headers.pop("moldau.timestamp")[:2] == "20"
    assert headers == {
        "moldau.error": "field id is missing",
        "moldau.topic": topic,
        "moldau.partition": "0",
        "moldau.offset": "8",
        "moldau.source": "changes",
        "moldau.pipeline": "streams",
    }
    reason = next(bytes(pair.value).decode() for pair in letters[2].headers if pair.key == "moldau.error")
    assert reason == "the value is null (a tombstone), and id is NOT NULL"


def test_a_bad_record_fails_a_query_with_dead_letter_fail(
    spark: SparkSession,
    tmp_path: Path,
    bootstrap: str,
    create_topic: Callable[[int], str],
    produce: Produce,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = create_topic(1)
    file = tmp_path / "pipeline.yaml"
    text = f"""
        name: strict
        bootstrap: {bootstrap}
        sources:
          events: {{topic: {topic}, schema: id string, dead_letter: fail}}
        sinks:
          - {{name: shown, from: events, console: true}}
    """
    file.write_text(dedent(text))
    produce(topic, [b'{"id":"first"}'])
    (flow,) = compile_pipeline(load(file), spark).flows
    query = start(flow, tmp_path / "state", until_caught_up=True)
    assert query.awaitTermination(SPARK_PATIENCE_S)
    shown = capsys.readouterr().out
    assert "--- shown, batch 0 ---" in shown
    assert "first" in shown
    produce(topic, [b'{"id":"second"}', b'{"id":'])
    query = start(flow, tmp_path / "state", until_caught_up=True)
    with pytest.raises(Exception, match=rf"bad record in topic {topic}, partition 0, offset 2: not JSON: expecting"):
        query.awaitTermination(SPARK_PATIENCE_S)
