"""A Spark with its own Kafka connector (`format("kafka")`), which gets what to read as lines of JSON on stdin.

It runs in a Python with the pyspark that the connector was built for, so it needs pyspark alone. Each answer is a line
of JSON on stdout.

    python spark_kafka_connector_reader.py JAR,JAR
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def session(jars: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in (("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false"),
                        ("spark.sql.shuffle.partitions", "2")):  # fmt: skip
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def rows_of(frame: DataFrame) -> list[list[Any]]:
    shown = frame.selectExpr(
        *("topic", "partition", "offset", "cast(key as string) key", "cast(value as string) value"),
        *("unix_millis(timestamp) at", "transform(headers, h -> array(h.key, cast(h.value as string))) headers"),
    )
    return [[*row[:-1], row.headers or []] for row in shown.collect()]


def read(spark: SparkSession, options: dict[str, str]) -> dict[str, Any]:
    frame = spark.read.format("kafka").options(**options).load()
    return {"rows": rows_of(frame), "tasks": frame.rdd.getNumPartitions()}


def stream(spark: SparkSession, options: dict[str, str], folder: str) -> dict[str, Any]:
    """Read all that there is into a table of this folder, from where the last call has ended. Return the table."""
    writer = spark.readStream.format("kafka").options(**options).load().writeStream.format("parquet")
    query = (
        writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(f"{folder}/rows")
    )
    query.awaitTermination()
    batches = sum(1 for each in query.recentProgress if each["sources"][0]["endOffset"])
    return {"rows": rows_of(spark.read.parquet(f"{folder}/rows")), "batches": batches}


def main() -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = session(sys.argv[1])
    print(json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        work = json.loads(line)
        folder = work.pop("folder", None)
        print(json.dumps(stream(spark, work, folder) if folder else read(spark, work)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
