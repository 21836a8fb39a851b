"""The pipeline's step in Python: logins that their users should hear of."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def suspicious(events: DataFrame, failed_logins: int, countries: int, window: str) -> DataFrame:
    """Users with so many failed logins, or logins from so many countries, within one window."""
    logins = events.where("type = 'login'").groupBy(f.window("ts", window), "user_id", "user_name")
    counted = logins.agg(
        f.count_if(~f.col("success")).alias("failed"),
        f.array_sort(f.collect_set("country")).alias("countries"),
    )
    many_failures = f.col("failed") >= failed_logins
    return counted.where(many_failures | (f.size("countries") >= countries)).select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        "user_id",
        "user_name",
        "failed",
        "countries",
        f.when(many_failures, "failed logins").otherwise("several countries").alias("reason"),
    )
