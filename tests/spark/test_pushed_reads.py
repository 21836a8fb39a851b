"""Reads with `where` and `fields` in a real Spark. tests/interop/test_spark_pushed_reads.py has what needs no JVM."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.order_records import FIELDS, WHERE, Record, random_orders, shown_value
from harness.patience import PATIENCE_S, SPARK_PATIENCE_S
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark.progress.tally import Progress, Tally
from moldau.spark.pushed.shape import PREFIX, Shape
from moldau.testing import broker

pytest.importorskip("duckdb")
CreateTopic = Callable[[int], str]
NOW_MS = time.time_ns() // 1_000_000
SHAPE = {"where": WHERE, "fields": FIELDS}


@pytest.fixture
def here(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap}


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def produce(settings: dict[str, Any], topic: str, records: list[Record]) -> None:
    producer = Producer({**settings, "log_level": 0})
    for each in records:
        producer.produce(topic, each.value, each.key, each.partition, timestamp=each.timestamp, headers=each.headers)
    assert producer.flush(PATIENCE_S) == 0


def row_values(rows: DataFrame) -> list[tuple[Any, ...]]:
    shown = rows.selectExpr(
        *("topic", "partition", "offset", "key", "headers"),
        *("cast(value as string) value", "unix_millis(timestamp) at"),
    )
    return sorted(
        (row.topic, row.partition, row.offset, row.key, json.loads(row.value), row["at"], list(map(tuple, row.headers)))
        for row in shown.collect()
    )


def expected(topic: str, records: list[Record]) -> list[tuple[Any, ...]]:
    offsets = [0, 0]
    found = []
    for each in records:
        value = shown_value(each)
        if value is not None:
            found.append(
                (topic, each.partition, offsets[each.partition], each.key, value, each.timestamp, each.headers)
            )
        offsets[each.partition] += 1
    return sorted(found, key=lambda row: row[:3])


def run(frame: DataFrame, to: Path, checkpoint: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(to))
    assert query.awaitTermination(SPARK_PATIENCE_S)
    return query


def test_a_batch_and_a_restarted_stream_read_what_python_filters(
    spark: SparkSession,
    here: dict[str, str],
    bootstrap: str,
    create_topic: CreateTopic,
    admin: AdminClient,
    tmp_path: Path,
) -> None:
    topics = [create_topic(2), create_topic(2)]
    rng = random.Random(11)
    records = {topic: random_orders(rng, 500, NOW_MS) for topic in topics}
    first, second = slice(0, 300), slice(300, None)
    options = {**here, **SHAPE, "subscribe": ",".join(topics), "includeHeaders": "true"}
    sink, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"

    def stream() -> StreamingQuery:
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
        return run(spark.readStream.format("moldau").options(**options, **limits).load(), sink, checkpoint)

    for topic in topics:
        produce({"bootstrap.servers": bootstrap}, topic, records[topic][first])
    reports = stream().recentProgress
    assert len(reports) >= 3, "the limit counts offsets of the source"
    assert reports[-1].sources[0].endOffset == reports[-1].sources[0].latestOffset, "no lag"
    assert all(PREFIX not in str(each.sources[0].endOffset) for each in reports), "checkpoints have the source's name"
    made = [Shape(**SHAPE).view_name(topic) for topic in topics]
    for deleted in admin.delete_topics(made).values():
        deleted.result(PATIENCE_S)  # the next run makes them again
    for topic in topics:
        produce({"bootstrap.servers": bootstrap}, topic, records[topic][second])
    stream()
    wanted = sorted([row for topic in topics for row in expected(topic, records[topic])], key=lambda row: row[:3])
    assert row_values(spark.read.parquet(str(sink))) == wanted
    assert row_values(spark.read.format("moldau").options(**options).load()) == wanted


def test_a_running_stream_shows_its_lag_and_survives_the_deletion_of_its_view(
    spark: SparkSession, here: dict[str, str], bootstrap: str, create_topic: CreateTopic, admin: AdminClient
) -> None:
    topic = create_topic(2)
    records = random_orders(random.Random(5), 300, NOW_MS)
    view = Shape(**SHAPE).view_name(topic)
    options = {**here, **SHAPE, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("moldau").options(**options).load()
    query = rows.writeStream.format("memory").queryName("survivor").start()
    try:
        for some in (records[:150], records[150:]):
            produce({"bootstrap.servers": bootstrap}, topic, some)
            query.processAllAvailable()
            admin.delete_topics([view])[view].result(PATIENCE_S)
        shown = spark.table("survivor").select("partition", "offset").collect()
        assert sorted(map(tuple, shown)) == [row[1:3] for row in expected(topic, records)]
        progress = [each for each in query.recentProgress if each.numInputRows]
        assert progress, "rows were counted"
        tally = Tally(Progress(name="survivor"), 0.0)
        tally.take([json.loads(progress[-1].json)], 1.0)
        assert tally.progress.lag_records == 0
    finally:
        query.stop()


def raised_by(call: Callable[[], object]) -> PySparkException:
    with pytest.raises(PySparkException) as raised:
        call()
    return raised.value


def test_load_reports_an_invalid_condition(
    spark: SparkSession, here: dict[str, str], create_topic: CreateTopic
) -> None:
    options = {**here, "subscribe": create_topic(1), "where": "amount >"}
    for reader in (spark.read, spark.readStream):
        error = raised_by(reader.format("moldau").options(**options).load)
        assert str(error) == "where: a field, a number or a text is missing at the end"
    with_schema = spark.readStream.format("moldau").options(**options).schema("value binary").load()
    error = raised_by(with_schema.writeStream.format("noop").start().awaitTermination)
    assert str(error) == "where: a field, a number or a text is missing at the end"


def test_an_equal_view_is_read(
    spark: SparkSession, here: dict[str, str], bootstrap: str, create_topic: CreateTopic, admin: AdminClient
) -> None:
    topic = create_topic(2)
    records = random_orders(random.Random(6), 200, NOW_MS)
    produce({"bootstrap.servers": bootstrap}, topic, records)
    configs = {"moldau.view.from": topic, "moldau.view.where": WHERE, "moldau.view.select": FIELDS}
    mine = f"mine-{topic}"
    admin.create_topics([NewTopic(mine, -1, -1, config=configs)])[mine].result(PATIENCE_S)
    rows = spark.read.format("moldau").options(**here, **SHAPE, subscribe=topic, includeHeaders="true").load()
    assert row_values(rows) == expected(topic, records)
    assert Shape(**SHAPE).view_name(topic) not in admin.list_topics(timeout=PATIENCE_S).topics


def test_the_error_for_a_user_without_rights_has_the_administrators_command(spark: SparkSession) -> None:
    with broker(secure=True) as kafka:
        admin = AdminClient({**kafka.client_config(), "log_level": 0})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
        kafka.add_user("ann")
        kafka.allow("ann", "read", topic="orders")
        properties = {"kafka." + name: value for name, value in kafka.java_properties("ann").items()}
        rows = spark.read.format("moldau").options(**properties, subscribe="orders")
        assert rows.load().count() == 0
        error = raised_by(rows.option("where", "amount > 100").load)
        assert type(error).__name__ == "KafkaError"
        assert "An administrator can: `moldau view create" in str(error)
        assert "--from orders --where 'amount > 100'`" in str(error)
        assert set(admin.list_topics(timeout=PATIENCE_S).topics) == {"orders"}
