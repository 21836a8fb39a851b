"""The connector in a real Spark. tests/interop has the tests that need no JVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.patience import SPARK_PATIENCE_S
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark.errors.sentences import REAL_TIME

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
    assert query.awaitTermination(SPARK_PATIENCE_S)
    return query


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(each.json) for each in query.recentProgress]


def test_rows_are_written_to_a_topic_and_read_back(spark: SparkSession, here: dict[str, str], topic: Topic) -> None:
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


def test_a_stream_resumes_where_it_stopped(
    spark: SparkSession, here: dict[str, str], topic: Topic, tmp_path: Path
) -> None:
    source, sink = topic(), topic()
    write(numbers(spark, 0, 1000), here, source)
    reports = progress(run(spark, here, source, sink, tmp_path))
    assert sum(each["numInputRows"] for each in reports) == 1000
    end = reports[-1]["sources"][0]["endOffset"]
    assert sum(json.loads(end)[source].values() if isinstance(end, str) else end[source].values()) == 1000
    write(numbers(spark, 1000, 1300), here, source)
    assert sum(each["numInputRows"] for each in progress(run(spark, here, source, sink, tmp_path))) == 300
    copied = spark.read.format("moldau").options(**here, subscribe=sink).load()
    assert copied.selectExpr("cast(cast(value as string) as int) n").agg(F.sum("n"), F.count("n")).first() == (
        sum(range(1300)),
        1300,
    )


def raised_by(call: Callable[[], object]) -> PySparkException:
    with pytest.raises(PySparkException) as raised:
        call()
    return raised.value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t", "startingOffset": "earliest"}, "The connector has no option startingoffset; did you mean"),
        ({"subscribe": "t", "startingOffsets": "begin"}, "startingOffsets is earliest, latest or offsets as JSON"),
        ({"subscribe": "no-such-topic"}, "There is no topic no-such-topic at "),
        ({}, "One of the options subscribe, subscribePattern and assign says what to read"),
        ({"subscribe": "t", "kafka.bootstrap.servers": ""}, "The option kafka.bootstrap.servers is missing"),
    ],
)
def test_load_reports_invalid_options(
    spark: SparkSession, here: dict[str, str], options: dict[str, str], message: str
) -> None:
    for reader in (spark.read, spark.readStream):
        error = raised_by(lambda reader=reader: reader.format("moldau").options(**{**here, **options}).load())  # type: ignore[misc]
        assert isinstance(error, AnalysisException), "code that catches Spark's exception catches it"
        assert str(error).startswith(message)
        assert "\n" not in str(error)
        assert error.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
        assert type(error).__name__ in ("ConnectorError", "KafkaError")


def test_load_succeeds_and_the_read_fails_if_the_broker_is_unreachable(spark: SparkSession) -> None:
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "fetchOffset.numRetries": "0", "subscribe": "t"}
    rows = spark.read.format("moldau").options(**nowhere).load()
    error = raised_by(rows.count)
    assert str(error).startswith("No broker answers: 127.0.0.1:1: ")
    assert type(error).__name__ == "Unreachable"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "no-such-topic"}, "There is no topic no-such-topic"),
        ({}, "One of the options subscribe, subscribePattern and assign"),
        ({"subscribe": "no-such-topic", "endingOffsets": "latest"}, "endingOffsets is for batch queries"),
    ],
)
def test_a_stream_with_its_own_schema_reports_invalid_options_when_it_runs(
    spark: SparkSession, here: dict[str, str], options: dict[str, str], message: str
) -> None:
    """With a schema given, the options are not checked before the query runs."""
    rows = spark.readStream.format("moldau").options(**here, **options).schema("value binary").load()
    query = rows.writeStream.format("noop").start()
    error = raised_by(query.awaitTermination)
    assert isinstance(error, StreamingQueryException)
    assert str(error).startswith(message)
    assert "\n" not in str(error)


def test_data_loss_is_reported_in_one_line(spark: SparkSession, here: dict[str, str], topic: Topic) -> None:
    name = topic()
    write(numbers(spark, 0, 5), here, name)
    beyond = {"startingOffsets": json.dumps({name: {"0": 7}}), "endingOffsets": json.dumps({name: {"0": 9}})}
    error = raised_by(spark.read.format("moldau").options(**here, **beyond, subscribe=name).load().count)
    assert isinstance(error, PythonException), "raised in a task"
    assert type(error).__name__ == "DataLoss"
    assert str(error).startswith(f"{name}-0")
    assert str(error).endswith("To read on past the loss, set failOnDataLoss=false")
    assert "\n" not in str(error)


def test_rows_that_cannot_be_records_are_refused(spark: SparkSession, here: dict[str, str], topic: Topic) -> None:
    error = raised_by(lambda: write(spark.range(3).withColumnRenamed("id", "value"), here, topic()))
    assert str(error) == "The column value must be binary or string, not bigint"
    nowhere = spark.sql("select 'v' value, 'k' key, 77 partition")
    error = raised_by(lambda: write(nowhere, here, topic()))
    assert str(error).startswith("A row has partition 77, but ")


def test_a_query_reports_invalid_sink_options(spark: SparkSession, here: dict[str, str], tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) value")
    writer = rows.writeStream.format("moldau").options(**here, topic="t").option("checkpointLocation", str(tmp_path))
    query = writer.option("kafka.acks", "two").start()
    error = raised_by(query.awaitTermination)
    assert str(error) == "kafka.acks is all, -1, 0 or 1, not two"


def test_real_time_mode_is_refused_in_one_sentence(
    spark: SparkSession, here: dict[str, str], topic: Topic, tmp_path: Path
) -> None:
    name = topic()
    write(numbers(spark, 0, 1), here, name)
    rows = spark.readStream.format("moldau").options(**here, subscribe=name).load().select("value")
    writer = rows.writeStream.outputMode("update").trigger(realTime="5 minutes")
    writer = writer.options(**here, topic=name, checkpointLocation=str(tmp_path))
    error = raised_by(writer.format("moldau").start)
    assert (type(error).__name__, str(error)) == ("NoRealTimeMode", REAL_TIME)
    error = raised_by(writer.format("console").start().awaitTermination)
    assert (type(error).__name__, str(error)) == ("NoRealTimeMode", REAL_TIME)


def test_a_format_whose_jar_is_missing_points_to_moldaus_format(spark: SparkSession, tmp_path: Path) -> None:
    error = raised_by(lambda: spark.read.format("delta").load(str(tmp_path)))
    assert isinstance(error, AnalysisException)
    assert str(error).startswith('There is no format delta in this session: format("moldau-lake") with option(')
    error = raised_by(lambda: spark.readStream.format("kafka").option("subscribe", "t").load())
    assert str(error).startswith('There is no format kafka in this session: format("moldau") takes')


def test_errors_of_spark_and_of_users_are_unchanged(spark: SparkSession) -> None:
    error = raised_by(lambda: spark.range(3).select("idd"))
    assert type(error) is AnalysisException
    assert str(error).startswith("[UNRESOLVED_COLUMN")
    divided = F.udf(lambda number: 1 // 0, "int", useArrow=False)(F.col("id"))
    assert "ZeroDivisionError" in str(raised_by(spark.range(1).select(divided).collect))
