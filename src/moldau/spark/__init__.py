"""Topics as Spark DataFrames: the connector (format "moldau"), lake tables, and a SparkSession that is ready for them.

Here is only the door. It must stay light: executors import this package for the connector, and the command line for
its messages, so that neither pyspark nor pyarrow may be imported before somebody asks for a session.
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
    """A running SparkSession that knows the formats "moldau" and "moldau-lake"; the present one if there is one.

    `master` as Spark writes it: "local[2]", "spark://host:7077", "k8s://…", "yarn"; by default what spark-defaults.conf
    says, else every core of this machine. `conf` is any configuration of Spark's, which wins over our defaults:

        spark = moldau.spark.session("counts", **{"spark.driver.memory": "2g"})
        spark.read.format("moldau").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "clicks")

    `quick_start` is for work of seconds, such as checks and tests: Java compiles once and not again for speed, which
    saves half of the CPU time of a start and costs it back in queries that run for minutes.

    `on_phase` is told what is going on ("starting Java", "starting Spark"), for whoever has to wait.

    Raises MissingPackage or MissingJava, each one line that says what to install.
    """
    from moldau.spark.spark_session import start

    return start(name, master, quick_start, conf, on_phase)


def show_progress(query: StreamingQuery, seconds: float | None = None) -> None:
    """Shows what a streaming query does in one line, until it ends or Ctrl-C is pressed; the query then goes on.

        query = counts.writeStream.format("console").queryName("counts").start()
        moldau.spark.show_progress(query)

        counts: running · batch 41 (182 ms) · 20,500 rows in · 1,240 rows/s · lag 310

    In a notebook and on a terminal the line is rewritten in place, elsewhere there is one every ten seconds. A query
    that fails is shown with the reason. `seconds`: look no longer than this.
    """
    from moldau.spark.progress.showing import show

    show(query, seconds)
