"""The connector inside a real Spark: what tests/interop checks without a JVM is not checked again here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

Topic = Callable[[], str]


@pytest.fixture
def here(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap}


def write(frame: DataFrame, here: dict[str, str], topic: str) -> None:
    frame.write.format("moldau").options(**here, topic=topic).mode("append").save()


def numbers(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).selectExpr("cast(id % 10 as string) key", "cast(id as string) value")


def run(spark: SparkSession, here: dict[str, str], source: str, sink: str, checkpoint: Path) -> StreamingQuery:
    frame = spark.readStream.format("moldau").options(**here, subscribe=source, startingOffsets="earliest").load()
    writer = frame.select("key", "value").writeStream.format("moldau").options(**here, topic=sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return query


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(each.json) for each in query.recentProgress]


def test_rows_to_a_topic_and_back(spark: SparkSession, here: dict[str, str], topic: Topic) -> None:
    name = topic()
    write(numbers(spark, 0, 50_000), here, name)
    rows = spark.read.format("moldau").options(**here, subscribe=name).load()
    assert rows.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    got = rows.select(F.col("value").cast("string").cast("long").alias("n")).agg(
        F.count("*"), F.countDistinct("n"), F.sum("n"), F.max("n")
    )
    assert got.first() == (50_000, 50_000, sum(range(50_000)), 49_999)


def test_a_schema_is_a_projection(spark: SparkSession, here: dict[str, str], topic: Topic) -> None:
    name = topic()
    write(numbers(spark, 0, 5), here, name)
    rows = spark.read.format("moldau").options(**here, subscribe=name).schema("offset bigint, value binary").load()
    assert rows.columns == ["offset", "value"]
    assert sorted(row.value for row in rows.collect()) == [b"%d" % number for number in range(5)]


def test_headers_pass_through(spark: SparkSession, here: dict[str, str], topic: Topic) -> None:
    name = topic()
    rows = spark.sql("select 'v' value, array(named_struct('key', 'h', 'value', cast('x' as binary))) headers")
    write(rows.union(spark.sql("select 'w', array()")), here, name)
    read = spark.read.format("moldau").options(**here, subscribe=name, includeHeaders="true").load()
    assert {row.value: [tuple(each) for each in row.headers] for row in read.collect()} == {
        b"v": [("h", b"x")],
        b"w": [],
    }


def test_a_stream_resumes_where_it_was(spark: SparkSession, here: dict[str, str], topic: Topic, tmp_path: Path) -> None:
    source, sink = topic(), topic()
    write(numbers(spark, 0, 1000), here, source)
    told = progress(run(spark, here, source, sink, tmp_path))
    assert sum(each["numInputRows"] for each in told) == 1000
    end = told[-1]["sources"][0]["endOffset"]
    assert sum(json.loads(end)[source].values() if isinstance(end, str) else end[source].values()) == 1000
    write(numbers(spark, 1000, 1300), here, source)
    assert sum(each["numInputRows"] for each in progress(run(spark, here, source, sink, tmp_path))) == 300
    copied = spark.read.format("moldau").options(**here, subscribe=sink).load()
    assert copied.selectExpr("cast(cast(value as string) as int) n").agg(F.sum("n"), F.count("n")).first() == (
        sum(range(1300)),
        1300,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such-topic"}, "There is no topic no-such-topic"),
        ({}, "One of the options subscribe, subscribePattern and assign"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "did you mean startingOffsets"),
    ],
)
def test_what_is_wrong_is_in_the_message(
    spark: SparkSession, here: dict[str, str], options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        spark.read.format("moldau").options(**here, **options).load().count()


def test_rows_that_cannot_be_records(spark: SparkSession, here: dict[str, str], topic: Topic) -> None:
    with pytest.raises(PySparkException, match="The column value must be binary or string, not bigint"):
        write(spark.range(3).withColumnRenamed("id", "value"), here, topic())
