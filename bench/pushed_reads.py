"""Spark reads 1 % of a topic: filtered by the broker (`where` and `fields`), against all of it filtered by Spark.

Values are about 100 B and 1 KiB of JSON. Every round has another condition, so the broker evaluates a view that nobody
has read before; then Spark reads it again (warm). Bytes are those of records that the broker has sent. Broker, its
workers and Spark with one task share this machine's cores. Linux only.

    python -m bench.pushed_reads
    python -m bench.pushed_reads --records 200000 --rounds 3
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import time
import urllib.request
from typing import TYPE_CHECKING

from bench.brokers.servers import MoldauProcess
from bench.views import create, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT = re.compile(r"^\w+_bytesout_total\{.*\} ([0-9.e+]+)$", re.MULTILINE)


class Measured:
    """One broker with a full topic, and a Spark that reads it."""

    def __init__(self, spark: SparkSession, address: str, metrics: str, records: int) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": address, "subscribe": "source"}
        self._metrics = metrics
        self._records = records

    def pushed(self, amount: int) -> tuple[float, int]:
        return self._run(self._orders(where=f"amount = {amount}", fields="id, amount"))

    def filtered(self, amount: int) -> tuple[float, int]:
        return self._run(self._orders().where(f"order.amount = {amount}"))

    def _orders(self, **options: str) -> DataFrame:
        rows = self._spark.read.format("moldau").options(**self._options, **options).schema("value binary").load()
        return rows.selectExpr("from_json(cast(value as string), 'id bigint, amount int') as order")

    def _run(self, rows: DataFrame) -> tuple[float, int]:
        """Return seconds, and bytes of records that the broker sent."""
        before, began = self._sent(), time.perf_counter()
        count = rows.count()
        seconds = time.perf_counter() - began
        assert count == self._records // 100
        return seconds, self._sent() - before

    def _sent(self) -> int:
        with urllib.request.urlopen(f"http://{self._metrics}/metrics") as reply:
            return int(sum(map(float, SENT.findall(reply.read().decode()))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="of 100 B; a quarter of it of 1 KiB")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    import moldau.spark

    spark = moldau.spark.session("pushed-reads", master="local[1]")
    for size, padding, records in (("100 B", 25, options.records), ("1 KiB", 930, options.records // 4)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            metrics = f"127.0.0.1:{free.getsockname()[1]}"
        with MoldauProcess(settings={"metrics.listener": metrics}) as process:
            server = process.start()
            create(server, "source")
            fill(server, "source", records, padding)
            measure(Measured(spark, server.address, metrics, records), size, options.rounds)
    spark.stop()


def measure(measured: Measured, size: str, rounds: int) -> None:
    measured.pushed(99)  # starts the broker's workers and those of Spark
    measured.filtered(99)
    cold_times, warm_times, bytes_times = [], [], []
    for amount in range(rounds):
        cold_s, sent = measured.pushed(amount)
        warm_s, _ = measured.pushed(amount)
        all_s, all_sent = measured.filtered(amount)
        print(f"{size}: where {cold_s:.2f} s, again {warm_s:.2f} s, reading all {all_s:.2f} s", flush=True)
        cold_times.append(all_s / cold_s)
        warm_times.append(all_s / warm_s)
        bytes_times.append(all_sent / sent)
    print(
        f"{size}: {statistics.median(cold_times):.1f} times sooner than reading all,"
        f" {statistics.median(warm_times):.1f} times if somebody has read the view before;"
        f" {statistics.median(bytes_times):.0f} times fewer bytes",
        flush=True,
    )


if __name__ == "__main__":
    main()
