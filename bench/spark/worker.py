"""One Spark with one connector, told by lines on stdin what to do; a line of JSON on stdout says how long it took.

It runs in the Python of the connector it measures: ours, or one with the pyspark that Spark's own Kafka connector was
built for. So it needs pyspark alone, and moldau only for ours.

    python bench/spark/worker.py FORMAT BOOTSTRAP TOPIC ROWS [JARS]
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS = "moldau"
SMALL_BATCH_ROWS = 1000
SMALL_BATCHES = 30


def session(jars: str) -> SparkSession:
    if not jars:
        import moldau.spark

        return moldau.spark.session("bench", master="local[2]")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in (("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false"),
                        ("spark.sql.shuffle.partitions", "2")):  # fmt: skip
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


class Work:
    def __init__(self, kind: str, bootstrap: str, topic: str, rows: int, spark: SparkSession) -> None:
        self._kind = kind
        self._here = {"kafka.bootstrap.servers": bootstrap}
        self._topic = topic
        self._rows = rows
        self._spark = spark

    def made(self) -> DataFrame:
        """Rows with a short key and a value of 100 bytes."""
        return self._spark.range(0, self._rows, 1, 4).selectExpr(
            "cast(concat('k', id % 1000) as binary) key", "cast(repeat('0123456789', 10) as binary) value"
        )

    def read(self) -> DataFrame:
        return self._spark.read.format(self._kind).options(**self._here, subscribe=self._topic).load()

    def write(self, frame: DataFrame, topic: str) -> None:
        frame.write.format(self._kind).options(**self._here, topic=topic).mode("append").save()

    def fill(self) -> None:
        self.write(self.made(), self._topic)

    def topic_to_nothing(self) -> None:
        _discard(self.read())

    def topic_to_counts(self) -> None:
        _discard(self.read().groupBy("key").count())

    def rows_to_topic(self) -> None:
        self.write(self.made(), self._topic + "-out")

    def topic_to_topic(self) -> None:
        self.write(self.read().select("key", "value"), self._topic + "-copy")

    def stream_to_nothing(self) -> None:
        self._stream(self._topic, {})

    def small_batches(self) -> float:
        """Milliseconds of a micro-batch with little in it: what a batch costs before its records."""
        limit = {"maxOffsetsPerTrigger": str(SMALL_BATCH_ROWS)}
        progress = self._stream(self._topic + "-small", limit)
        took = [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]]
        return statistics.median(took[2:])

    def fill_small(self) -> None:
        self.write(self.made().limit(SMALL_BATCH_ROWS * SMALL_BATCHES), self._topic + "-small")

    def _stream(self, topic: str, options: dict[str, str]) -> list[Any]:
        checkpoint = tempfile.mkdtemp(prefix="moldau-bench-")
        source = self._spark.readStream.format(self._kind)
        frame = source.options(**self._here, subscribe=topic, startingOffsets="earliest", **options).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(checkpoint, ignore_errors=True)
        return [json.loads(each.json) if hasattr(each, "json") else each for each in query.recentProgress]


def _discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    kind, bootstrap, topic, rows, *jars = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = session(jars[0] if jars else "")
    work = Work(kind, bootstrap, topic, int(rows), spark)
    print(json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        todo: Callable[[], float | None] = getattr(work, line.strip())
        began = time.perf_counter()
        own_value = todo()
        print(json.dumps({"seconds": time.perf_counter() - began, "own_value": own_value}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
