"""One query on two Spark drivers: the first is stopped (SIGSTOP) in its commit, and continues after the second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
from harness.depth import only_deep
from harness.patience import SPARK_PATIENCE_S, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOPPING = """
import os, signal
from moldau.spark.lake.ownership import Ownership

begin = Ownership.begin

def stopping_begin(*args, **named):
    with open(os.environ["STOPPED_PID"] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, os.environ["STOPPED_PID"])
    os.kill(os.getpid(), signal.SIGSTOP)
    return begin(*args, **named)

Ownership.begin = stopping_begin
"""
DRIVER = """
import sys
import moldau.spark
spark = moldau.spark.session("first driver")
rows = spark.readStream.schema("id bigint").json(sys.argv[1] + "/input")
sink = rows.writeStream.format("moldau-lake").option("checkpointLocation", sys.argv[1] + "/checkpoint")
query = sink.trigger(availableNow=True).start(sys.argv[1] + "/table")
try:
    query.awaitTermination()
except Exception as error:
    print(type(error).__name__, error)
"""


@only_deep
def test_a_driver_that_was_stopped_in_its_commit_is_fenced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0.json").write_text("\n".join(f'{{"id": {number}}}' for number in range(50)))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(STOPPING)
    pid = tmp_path / "stopped"
    path = os.pathsep.join([str(tmp_path / "site"), *sys.path])
    first = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path, "STOPPED_PID": str(pid)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(
            lambda: pid.exists() or first.poll() is not None,
            "the first driver stops in its commit",
            progress=lambda: len(list(tmp_path.rglob("*"))),
        )
        assert pid.exists(), first.communicate()
        rows = spark.readStream.schema("id bigint").json(str(tmp_path / "input"))
        sink = rows.writeStream.format("moldau-lake").option("checkpointLocation", str(tmp_path / "checkpoint"))
        second = sink.trigger(availableNow=True).start(str(tmp_path / "table"))
        assert second.awaitTermination(SPARK_PATIENCE_S)
        assert second.exception() is None
        os.kill(int(pid.read_text()), signal.SIGCONT)
        refusal, _ = first.communicate(timeout=SPARK_PATIENCE_S)
    finally:
        first.kill()
    assert refusal.startswith(f"DriverFenced {tmp_path}/table: another driver of query {second.id} has taken over")
    found = ds.dataset(tmp_path / "table", format="parquet").to_table()
    assert sorted(found["id"].to_pylist()) == list(range(50))
