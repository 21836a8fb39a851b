"""Micro-batches in topics are complete and written once: replayed by Spark, and with driver, workers and broker killed.

tests/spark/test_exactly_once_wire.py kills the driver at every step of a commit, without Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from committed_records import committed_records
from confluent_kafka import Producer
from harness.patience import SPARK_PATIENCE_S
from harness.restartable_broker import RestartableBroker
from harness.spark_processes import python_workers
from spark_waits import wait_for_spark

from moldau.base.ids import TopicPartition
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster
from moldau.pipelines.reading.loading import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS = 500
BATCHES = 80
"""Enough that some are left when the last killed process has been restarted."""
PARTITIONS = 3
COPY = [TopicPartition("copy", index) for index in range(PARTITIONS)]
SPEC = f"""
name: fire
sources:
  numbers: {{topic: numbers, schema: n int not null, dead_letter: drop, max_per_trigger: {BATCH_ROWS}}}
sinks:
  - from: numbers
    name: copy
    topic: copy
    key: cast(n as string)
    options: {{kafka.transaction.timeout.ms: 10000}}
"""
REPLAYED = """
name: replayed
bootstrap: @BOOTSTRAP@
sources:
  numbers: {topic: @IN@, schema: n int not null, dead_letter: drop}
steps:
  - {name: counted, sql: "select n % 3 as rest, count(*) as many from numbers group by n % 3"}
sinks:
  - {name: plain, from: numbers, topic: @IN@.plain, key: cast(n as string), options: {stagingInlineBytes: 0}}
  - {name: counts, from: counted, topic: @IN@.counts, mode: update}
"""


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(topic, b'{"n": %d}' % number, partition=0)
        producer.poll(0)
    assert producer.flush(SPARK_PATIENCE_S) == 0


def values(bootstrap: str, topic: str) -> list[dict[str, int]]:
    return [json.loads(message.value() or b"") for message in committed_records(bootstrap, topic)]


def test_batches_replayed_by_spark_are_written_once(
    spark: SparkSession, bootstrap: str, create_topic: Callable[[int], str], tmp_path: Path
) -> None:
    """As after a driver that died between its commit and Spark's own: the file of Spark's commit is deleted."""
    from moldau.pipelines.planning.compiling import compile_pipeline, start

    topic = create_topic(1)
    file = tmp_path / "pipeline.yaml"
    file.write_text(REPLAYED.replace("@BOOTSTRAP@", bootstrap).replace("@IN@", topic))
    flows = compile_pipeline(load(file), spark).flows
    produce(bootstrap, topic, range(30))
    for is_replayed in (False, True):
        queries = {}
        for flow in flows:  # one at a time: Spark gives their Python processes ten seconds to start
            queries[flow.name] = start(flow, tmp_path / flow.name, until_caught_up=True)
            assert queries[flow.name].awaitTermination(SPARK_PATIENCE_S)
        assert sorted(row["n"] for row in values(bootstrap, f"{topic}.plain")) == list(range(30))
        counts = sorted((row["rest"], row["many"]) for row in values(bootstrap, f"{topic}.counts"))
        assert counts == [(0, 10), (1, 10), (2, 10)]
        if not is_replayed:
            for flow in flows:
                (tmp_path / flow.name / "commits" / "0").unlink()
                (tmp_path / flow.name / "commits" / ".0.crc").unlink(missing_ok=True)
    with closing(Cluster(bootstrap, {})) as cluster:
        noted = Groups(cluster, 10_000).committed([f"replayed.plain-{queries['plain'].id}"])
        assert [{where.topic: each.offset for where, each in of.items()} for of in noted.values()] == [
            {f"{topic}.plain": 0}
        ]
    assert not list(tmp_path.glob("*/moldau-staging/*")), "staged files are deleted"


# --- killed -----------------------------------------------------------------------------------------------------------


@contextmanager
def driver(folder: Path, bootstrap: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`moldau pipeline run` in a process group of its own, to be killed as one, JVM and Python workers included."""
    command = [sys.executable, "-m", "moldau", "pipeline", "run", str(folder / "fire.yaml"), "-b", bootstrap]
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--master", "local[2]", *options], stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Topic:
    """The end offsets of the topic `copy`, for read_committed and for read_uncommitted consumers."""

    def __init__(self, bootstrap: str) -> None:
        self._cluster = Cluster(bootstrap, {})

    def close(self) -> None:
        self._cluster.close()

    def committed(self) -> int:
        return sum(self._cluster.retry(lambda: self._cluster.latest(COPY, read_committed=True), 10_000).values())

    def is_open(self) -> bool:
        """Whether a transaction is open: then the last stable offset is behind the log end offset."""
        stable = self._cluster.retry(lambda: self._cluster.latest(COPY, read_committed=True), 10_000)
        return stable != self._cluster.retry(lambda: self._cluster.latest(COPY), 10_000)


def kill_workers(session: int) -> bool:
    """Kill the workers; return whether there were any. Spark replaces an idle worker without an error."""
    workers = python_workers(session)
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    return bool(workers)


def restarts(folder: Path) -> int:
    status = json.loads((folder / ".moldau" / "pipelines" / "fire" / "status.json").read_text())
    return sum(query["restarts"] for query in status["queries"])


def whole_batches(bootstrap: str) -> int:
    """How many micro-batches a reader sees. Check that each is complete, there once, and none is missing between."""
    seen = Counter(row["n"] for row in values(bootstrap, "copy"))
    assert set(seen.values()) <= {1}, "a record was written twice"
    batches = len(seen) // BATCH_ROWS
    assert seen.keys() == set(range(batches * BATCH_ROWS)), "a batch is incomplete or missing"
    return batches


def test_batches_are_complete_and_once_though_driver_workers_and_broker_are_killed(tmp_path: Path) -> None:
    (tmp_path / "fire.yaml").write_text(SPEC)
    broker = RestartableBroker(tmp_path / "data")
    with broker.running() as bootstrap:
        with closing(Cluster(bootstrap, {})) as cluster:
            cluster.create_topic("numbers", 1)
            cluster.create_topic("copy", PARTITIONS)
        produce(bootstrap, "numbers", range(BATCHES * BATCH_ROWS))
        with closing(Topic(bootstrap)) as copy:
            with driver(tmp_path, bootstrap) as first:
                wait_for_spark(lambda: copy.committed() > 3 * BATCH_ROWS, "the first batches")
                wait_for_spark(copy.is_open, "an open transaction", every_s=0)
                os.killpg(first.pid, signal.SIGKILL)
            done = whole_batches(bootstrap)  # waits until the transaction that was left open has timed out
            assert 3 <= done < BATCHES
            with driver(tmp_path, bootstrap, "--until-caught-up") as second:
                wait_for_spark(lambda: copy.committed() > (done + 2) * BATCH_ROWS, "another batch")
                wait_for_spark(
                    lambda: second.poll() is not None or (kill_workers(second.pid) and restarts(tmp_path) > 0),
                    "a query that lost its workers",
                )
                assert second.poll() is None, "all batches were done before a worker was killed in its work"
                after = copy.committed()
                wait_for_spark(lambda: copy.committed() > after + 2 * BATCH_ROWS, "a batch after the workers' death")
                wait_for_spark(copy.is_open, "an open transaction", every_s=0)
                assert second.poll() is None, "there is still something to do"
                broker.kill()
                broker.start()
                assert second.wait(SPARK_PATIENCE_S) == 0, (tmp_path / "run.log").read_text()[-3000:]
        assert whole_batches(bootstrap) == BATCHES
