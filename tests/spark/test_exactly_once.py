"""Micro-batches in topics are complete and written once: replayed by Spark, and with driver, workers and broker killed.

tests/spark/test_exactly_once_wire.py kills the driver at every step of a commit, without Spark; `make deep` kills it
with its JVM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from committed_records import committed_records
from confluent_kafka import Producer
from harness.depth import only_deep
from harness.patience import SPARK_PATIENCE_S
from harness.restartable_broker import RestartableBroker
from harness.spark_processes import python_workers
from spark_waits import wait_for_spark

from moldau.base.ids import TopicPartition
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.silence import Silence
from moldau.pipelines.running.state_directory import default_directory
from moldau.pipelines.running.stop_request import Stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS = 500
BATCHES = 80
"""Enough that some are left when the last process has been killed."""
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


class Fire:
    """A broker of its own with a filled topic `numbers`, and a pipeline that copies it to the topic `copy`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fire.yaml").write_text(SPEC)
        self._broker = RestartableBroker(folder / "data")
        self._broker.start()
        self.bootstrap = self._broker.bootstrap
        self._cluster = Cluster(self.bootstrap, {})
        self._cluster.create_topic("numbers", 1)
        self._cluster.create_topic("copy", PARTITIONS)
        produce(self.bootstrap, "numbers", range(BATCHES * BATCH_ROWS))

    def close(self) -> None:
        self._cluster.close()
        self._broker.kill()

    def restart_broker(self) -> None:
        self._broker.kill()
        self._broker.start()

    def committed(self) -> int:
        """The end offsets of the topic `copy` for read_committed consumers, added up."""
        return sum(self._cluster.retry(lambda: self._cluster.latest(COPY, read_committed=True), 10_000).values())

    def has_open_transaction(self) -> bool:
        """Then the last stable offset is behind the log end offset."""
        stable = self._cluster.retry(lambda: self._cluster.latest(COPY, read_committed=True), 10_000)
        return stable != self._cluster.retry(lambda: self._cluster.latest(COPY), 10_000)

    def restarts(self) -> int:
        status = json.loads((self.folder / ".moldau" / "pipelines" / "fire" / "status.json").read_text())
        return sum(query["restarts"] for query in status["queries"])

    def whole_batches(self) -> int:
        """How many micro-batches a reader sees. Check that each is complete, there once, and none is missing."""
        seen = Counter(row["n"] for row in values(self.bootstrap, "copy"))
        assert set(seen.values()) <= {1}, "a record was written twice"
        batches = len(seen) // BATCH_ROWS
        assert seen.keys() == set(range(batches * BATCH_ROWS)), "a batch is incomplete or missing"
        return batches


@pytest.fixture
def fire(tmp_path: Path) -> Iterator[Fire]:
    with closing(Fire(tmp_path)) as started:
        yield started


def kill_workers() -> bool:
    """Kill this process's workers; return whether there were any. Spark replaces an idle worker without an error."""
    workers = python_workers(os.getsid(0), driver=os.getpid())
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    return bool(workers)


def test_batches_are_complete_and_once_though_workers_and_broker_are_killed(spark: SparkSession, fire: Fire) -> None:
    from moldau.pipelines.planning.compiling import Mode
    from moldau.pipelines.running.launching import RunOptions, launch

    pipeline = load(fire.folder / "fire.yaml", bootstrap=fire.bootstrap)
    directory, options, stop = default_directory(pipeline.file, pipeline.name), RunOptions(mode=Mode.CONTINUOUS), Stop()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(launch, pipeline, directory, options, lambda on_phase: spark, Silence(), stop)
        try:
            wait_for_spark(lambda: fire.committed() > BATCH_ROWS, "the first batch")
            wait_for_spark(
                lambda: running.done() or (kill_workers() and fire.restarts() > 0),
                "a query that lost its workers",
            )
            after = fire.committed()
            wait_for_spark(lambda: fire.committed() > after + BATCH_ROWS, "a batch after the workers' death")
            wait_for_spark(fire.has_open_transaction, "an open transaction", every_s=0)
            fire.restart_broker()
            after = fire.committed()
            wait_for_spark(lambda: fire.committed() > after + BATCH_ROWS, "a batch after the broker's death")
        finally:
            stop.request("the test ends it")
        ended = running.result(SPARK_PATIENCE_S)
    assert ended.state == "stopped", ended.message
    assert 3 <= fire.whole_batches() < BATCHES


@contextmanager
def driver(fire: Fire, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`moldau pipeline run` in a process group of its own, to be killed as one, JVM and Python workers included."""
    command = [sys.executable, "-m", "moldau", "pipeline", "run", str(fire.folder / "fire.yaml"), "-b", fire.bootstrap]
    with (fire.folder / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--master", "local[2]", *options], stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@only_deep
def test_batches_are_complete_and_once_though_the_driver_is_killed(fire: Fire) -> None:
    with driver(fire) as first:
        wait_for_spark(lambda: fire.committed() > 3 * BATCH_ROWS, "the first batches")
        wait_for_spark(fire.has_open_transaction, "an open transaction", every_s=0)
        os.killpg(first.pid, signal.SIGKILL)
    done = fire.whole_batches()  # waits until the transaction that was left open has timed out
    assert 3 <= done < BATCHES
    with driver(fire, "--until-caught-up") as second:
        assert second.wait(SPARK_PATIENCE_S) == 0, (fire.folder / "run.log").read_text()[-3000:]
    assert fire.whole_batches() == BATCHES
