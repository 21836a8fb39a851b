"""Topics as Spark DataFrames: the connector (format "moldau"), lake tables, and a SparkSession that supports them.

This module is the public interface and must import quickly: executors import it for the connector, and the command line
for its messages, so neither pyspark nor pyarrow may be imported before a session is requested.

It may import `platforms`, `base`, `wire`, `columns` and `client`. Begin with `source` and `sink`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def session(
    name: str = "moldau",
    master: str | None = None,
    *,
    quick_start: bool = False,
    on_phase: Callable[[str], None] = lambda phase: None,
    **conf: object,
) -> SparkSession:
    """Return a running SparkSession with the formats "moldau" and "moldau-lake"; the current one if there is one.

    `master` is Spark's: "local[2]", "spark://host:7077", "k8s://…", "yarn"; the default is that of spark-defaults.conf,
    else every core of this machine. `conf` is any Spark configuration, which overrides our defaults:

        spark = moldau.spark.session("counts", **{"spark.driver.memory": "2g"})
        spark.read.format("moldau").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "clicks")

    `quick_start` is for work of seconds, such as checks and tests: Java uses only its fast compiler, which saves half
    of the CPU time of a start, but makes queries that run for minutes slower.

    `on_phase` is called with the current phase ("starting Java", "starting Spark"), to show it to the user.

    Raises MissingPackage or MissingJava, each one line that says what to install.
    """
    from moldau.spark.spark_session import start

    return start(name, master, quick_start, conf, on_phase)


def show_progress(query: StreamingQuery, seconds: float | None = None) -> None:
    """Show the progress of a streaming query in one line, until it ends or Ctrl-C is pressed; the query then continues.

        query = counts.writeStream.format("console").queryName("counts").start()
        moldau.spark.show_progress(query)

        counts: running · batch 41 (182 ms) · 20,500 rows in · 1,240 rows/s · lag 310

    In a notebook and on a terminal the line is rewritten in place, elsewhere there is one every ten seconds. A query
    that fails is shown with the reason. `seconds` limits the time.
    """
    from moldau.spark.progress.showing import show

    show(query, seconds)
