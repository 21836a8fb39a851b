"""A real cluster on loopback: Spark's standalone master and two workers, each a process, from the installed pyspark.

The workers' Python is an environment of its own that has numpy, pyarrow and the like but not Moldau, so that what
executors know of Moldau they know from the archive.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from moldau.spark.java import find_java

START_TIMEOUT_S = 60
JOB_TIMEOUT_S = 120

JOB = """
import json, sys
import moldau.spark

master, bootstrap, rows, copy, checkpoint = sys.argv[1:]
spark = moldau.spark.session("standalone", master, quick_start=True, **{
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.scheduler.minRegisteredResourcesRatio": 1,
    "spark.sql.shuffle.partitions": 2,
})

def where(_):
    import os, moldau, pyspark_moldau
    yield os.getcwd(), os.path.abspath(moldau.__file__), os.path.abspath(pyspark_moldau.__file__)

found = spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).collect()

kafka = {"kafka.bootstrap.servers": bootstrap}
made = spark.range(0, 1000, numPartitions=2).selectExpr("cast(id as string) as key", "cast(id as string) as value")
made.write.format("moldau").options(**kafka).option("topic", rows).mode("append").save()

stream = spark.readStream.format("moldau").options(**kafka).option("subscribe", rows)
stream = stream.option("startingOffsets", "earliest").load().select("key", "value")
query = stream.writeStream.format("moldau").options(**kafka).option("topic", copy)
query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()

read = spark.read.format("moldau").options(**kafka).option("subscribe", copy).load()
total = read.selectExpr("count(*)", "sum(cast(cast(value as string) as bigint))").first()
print(json.dumps({"found": found, "total": list(total)}))
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str]) -> Iterator[str]:
    """The URL of a master with two registered workers of one core."""
    directory = tmp_path_factory.mktemp("cluster")
    environment = clean_environment | {
        "JAVA_HOME": str(find_java().path),
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory),
    }
    with ExitStack() as processes:
        log = processes.enter_context(daemon(environment, "master.Master", directory / "master.log"))
        url = awaited(log, r"Starting Spark master at (spark://\S+)")[0]
        for number in range(2):
            options = ("--cores", "1", "--memory", "600m", "--work-dir", str(directory / f"work-{number}"), url)
            processes.enter_context(daemon(environment, "worker.Worker", directory / f"worker-{number}.log", *options))
        awaited(log, r"Registering worker .* with 1 cores", times=2)
        yield url


@contextmanager
def daemon(environment: dict[str, str], name: str, log: Path, *options: str) -> Iterator[Path]:
    """One of Spark's daemons on a free port; however the block ends, it is gone afterwards, and its children too."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    command = [program, f"org.apache.spark.deploy.{name}", *where, *options]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def awaited(log: Path, pattern: str, times: int = 1) -> list[str]:
    """What the log says once it has said it so many times."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(found := re.findall(pattern, log.read_text())) < times:
        assert time.monotonic() < deadline, f"{pattern} was not told:\n{log.read_text()[-4000:]}"
        time.sleep(0.05)
    return [str(one) for one in found]


def test_executors_read_and_write_topics_with_the_archive_alone(
    master: str,
    bare_python: Path,
    clean_environment: dict[str, str],
    bootstrap: str,
    create_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    rows, copy = create_topic(2), create_topic(2)
    program = tmp_path / "job.py"
    program.write_text(JOB)
    ran = subprocess.run(
        [sys.executable, program, master, bootstrap, rows, copy, tmp_path / "checkpoint"],
        env=clean_environment | {"PYSPARK_PYTHON": str(bare_python)},
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stderr[-6000:]
    assert ran.stderr == "", "a driver is quiet"
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["total"] == [1000, sum(range(1000))]
    for directory, package, face in told["found"]:
        assert package == f"{directory}/moldau.zip/moldau/__init__.py"
        assert face == f"{directory}/moldau.zip/pyspark_moldau/__init__.py"
    assert len({directory for directory, _, _ in told["found"]}) == 2, "two executors took part"
