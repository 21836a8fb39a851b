"""A cluster on loopback: in `make test` Spark's local-cluster, an executor whose master and worker are in the driver's
JVM; in `make deep` also Spark's standalone master and two workers, each a process, from the installed pyspark.

The executors' Python is an environment with numpy, pyarrow and the like but not Moldau: they can import Moldau only
from the archive.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable
from harness.depth import only_deep
from harness.patience import PATIENCE_S, SPARK_PATIENCE_S
from spark_waits import wait_for_spark

from moldau.spark.java import find_java

SPEC = """
name: standalone
sources:
  numbers: {{topic: {numbers}, schema: n int not null}}
steps:
  - {{name: traced, python: "traced:traced", inputs: [numbers]}}
sinks:
  - {{name: copy, from: traced, topic: {copy}, key: cast(n as string)}}
  - {{name: lake, from: numbers, table: lake/numbers, format: delta}}
"""
TRACED = """
import json, os
from pyspark.sql import functions as F

@F.udf("string")
def where(_):
    import moldau, pyspark_moldau
    return json.dumps([os.getcwd(), os.path.abspath(moldau.__file__), os.path.abspath(pyspark_moldau.__file__)])

def traced(numbers):
    return numbers.withColumn("made_by", where("n"))
"""
CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.sql.shuffle.partitions": "1",
}
RECORDS = 20_000
PARTITIONS = 2


class Master(NamedTuple):
    url: str
    executors: int
    environment: Mapping[str, str]
    """What a driver needs besides."""


@pytest.fixture(scope="module", params=["local-cluster", pytest.param("standalone", marks=only_deep)])
def master(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str]
) -> Iterator[Master]:
    directory = tmp_path_factory.mktemp("cluster")
    if request.param == "local-cluster":
        yield Master("local-cluster[1,1,600]", 1, {"SPARK_HOME": str(spark_home(directory))})
        return
    with standalone(directory, clean_environment) as url:
        yield Master(url, 2, {})


def spark_home(directory: Path) -> Path:
    """Another name of the installed Spark: the worker in a driver's JVM writes into the directory SPARK_HOME/work."""
    import pyspark

    for path in Path(pyspark.__file__).parent.iterdir():
        (directory / path.name).symlink_to(path)
    return directory


@contextmanager
def standalone(directory: Path, clean_environment: dict[str, str]) -> Iterator[str]:
    """The URL of a master with two registered workers of one core."""
    environment = clean_environment | {
        "JAVA_HOME": str(find_java().path),
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory),
    }
    with ExitStack() as processes:
        log = processes.enter_context(daemon(environment, "master.Master", directory / "master.log"))
        url = matches_in(log, r"Starting Spark master at (spark://\S+)")[0]
        for number in range(2):
            options = ("--cores", "1", "--memory", "600m", "--work-dir", str(directory / f"work-{number}"), url)
            processes.enter_context(daemon(environment, "worker.Worker", directory / f"worker-{number}.log", *options))
        matches_in(log, r"Registering worker .* with 1 cores", count=2)
        yield url


@contextmanager
def daemon(environment: dict[str, str], name: str, log: Path, *options: str) -> Iterator[Path]:
    """One of Spark's daemons on a free port. At the end of the block it is killed with its children."""
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


def matches_in(log: Path, pattern: str, count: int = 1) -> list[str]:
    """All matches of the pattern, once the log has so many."""

    def matches() -> list[str]:
        found = re.findall(pattern, log.read_text())
        return found if len(found) >= count else []

    return wait_for_spark(matches, lambda: f"{pattern} in the log:\n{log.read_text()[-4000:]}")


def fill(bootstrap: str, topic: str) -> None:
    """Enough for a task of its own for each partition, so that both executors work."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b'{"n": %d}' % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(SPARK_PATIENCE_S) == 0


def values(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    got: list[dict[str, Any]] = []
    while len(got) < RECORDS and (messages := consumer.consume(10_000, PATIENCE_S)):
        got += [json.loads(message.value() or b"") for message in messages]
    consumer.close()
    return got


def test_a_pipeline_runs_on_executors_that_import_moldau_from_the_archive(
    master: Master,
    bare_python: Path,
    clean_environment: dict[str, str],
    bootstrap: str,
    create_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    numbers, copy = create_topic(PARTITIONS), create_topic(PARTITIONS)
    fill(bootstrap, numbers)
    (tmp_path / "traced.py").write_text(TRACED)
    (tmp_path / "pipeline.yaml").write_text(SPEC.format(numbers=numbers, copy=copy))
    conf = [part for item in CONF.items() for part in ("--conf", "=".join(item))]
    command = [sys.executable, "-m", "moldau", "pipeline", "run", tmp_path / "pipeline.yaml", "--until-caught-up"]
    ran = subprocess.run(
        [*command, "--master", master.url, "-b", bootstrap, *conf],
        env={**clean_environment, **master.environment, "PYSPARK_PYTHON": str(bare_python)},
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr[-6000:]
    got = values(bootstrap, copy)
    assert sorted(row["n"] for row in got) == list(range(RECORDS))
    assert sorted(DeltaTable(tmp_path / "lake" / "numbers").to_pyarrow_table()["n"].to_pylist()) == list(range(RECORDS))
    executors = {row["made_by"] for row in got}
    for directory, package, face in map(json.loads, executors):
        assert package == f"{directory}/moldau.zip/moldau/__init__.py"
        assert face == f"{directory}/moldau.zip/pyspark_moldau/__init__.py"
    assert len(executors) == master.executors, "all executors took part"
