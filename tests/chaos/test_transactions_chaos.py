"""Consume–transform–produce on three nodes while copiers and brokers are killed, paused and disconnected: exactly once.

A topic is written without pause and copied in transactions by processes that are killed with -9 at any point.
read_committed consumers find each record once and in order. The faults are random, from a seed (MOLDAU_CHAOS_SEED), and
last MOLDAU_CHAOS_SECONDS for all libraries together.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_faults import Nemesis
from chaos_nodes import RECOVERY_S, Cluster, cluster, until
from confluent_kafka import Consumer, Producer, TopicPartition

SEED = int(os.environ.get("MOLDAU_CHAOS_SEED", "1"))
LIBRARIES = ("confluent", "kafka-python", "aiokafka")
SECONDS = float(os.environ.get("MOLDAU_CHAOS_SECONDS", "60")) / len(LIBRARIES)
CAUGHT_UP_S = 4 * RECOVERY_S
SOURCE, TARGET = "fire-in", "fire-out"
PARTITIONS = 3
END = b"the end"
STUCK = 75
"""The exit status of a copier whose library is stuck."""
COMBINED = {1: "broker,controller", 2: "broker,controller", 3: "broker,controller"}
TRANSACTIONS = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.min.isr": "2",
}


@pytest.fixture
def three_nodes(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, COMBINED, TRANSACTIONS) as running:
        for topic in (SOURCE, TARGET):
            running.create_topic(topic, PARTITIONS, min_insync=2)
        yield running


class Feed:
    """Writes 0, 1, 2, … to the partitions in turn, a hundred a second, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        self._producer = Producer(settings | {"reconnect.backoff.max.ms": 500})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acked: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        self.errors: list[str] = []
        self._thread.start()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(0.01):
            self._producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS, callback=self._on_delivery)
            number += 1
            self._producer.poll(0)

    def _on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self.acked[message.partition()].append(b"copy of " + message.value())  # type: ignore[attr-defined]
        else:
            self.errors.append(str(error))

    def finish(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(RECOVERY_S) == 0
        assert not self.errors


class Copying:
    """One copier at a time, in a process of its own."""

    def __init__(self, library: str, bootstrap: str, folder: Path) -> None:
        script = Path(__file__).parents[1] / "interop" / "transactional_copier.py"
        self._command = [sys.executable, str(script), library, bootstrap, SOURCE, TARGET, str(PARTITIONS)]
        self._log = folder / "copier.log"
        self.killed = self.stuck = 0
        self._process = self._start()

    def __enter__(self) -> Copying:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=path)

    def kill_and_start(self) -> None:
        self.restart_if_stuck()
        self._process.kill()
        self._process.wait()
        self.killed += 1
        self._process = self._start()

    def restart_if_stuck(self) -> None:
        """Restart a copier that ended because its library did not return from a call; any other end is a failure."""
        status = self._process.poll()
        assert status in (None, STUCK), self._log.read_text()[-3000:]
        if status == STUCK:
            self.stuck += 1
            self._process = self._start()


class Committed:
    """What a read_committed consumer has seen so far, by partition."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
        settings |= {"isolation.level": "read_committed", "reconnect.backoff.max.ms": 500, "log_level": 0}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(TARGET, partition, 0) for partition in range(PARTITIONS)])
        self.values: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}

    def __enter__(self) -> Committed:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self) -> dict[int, list[bytes]]:
        for each in self._consumer.consume(1000, 0.1):
            if not each.error():
                self.values[each.partition()].append(each.value() or b"")
        return self.values


def inject_faults(running: Cluster, copying: Copying, rng: random.Random) -> Nemesis:
    """Kill copiers and cause faults of brokers at random, both at least in the first round."""
    nemesis, end = Nemesis(running, rng), time.monotonic() + SECONDS
    while time.monotonic() < end:
        if not copying.killed or rng.random() < 0.5:
            copying.kill_and_start()
        if not nemesis.counts or rng.random() < 0.7:
            nemesis.begin(rng.choice(["kill", "pause", "disconnected"]), rng.choice(running.brokers))
        time.sleep(rng.uniform(0.5, 4))
        copying.restart_if_stuck()
        nemesis.end_all()
        time.sleep(rng.uniform(0, 2))
    return nemesis


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_record_is_copied_once_and_in_order(library: str, three_nodes: Cluster, tmp_path: Path) -> None:
    with (
        Feed(three_nodes.bootstrap) as feed,
        Copying(library, three_nodes.bootstrap, tmp_path) as copying,
        Committed(three_nodes.bootstrap) as seen,
    ):

        def has_begun() -> bool:
            copying.restart_if_stuck()
            return all(seen.read().values())

        until(has_begun, "records are copied to every partition", RECOVERY_S)
        nemesis = inject_faults(three_nodes, copying, random.Random(f"{SEED} {library}"))
        three_nodes.await_in_sync(TARGET, RECOVERY_S)
        feed.finish()

        def is_copied() -> bool:
            copying.restart_if_stuck()
            return all(len(seen.read()[each]) >= len(feed.acked[each]) for each in feed.acked)

        until(is_copied, "all records are copied", CAUGHT_UP_S)
    with Committed(three_nodes.bootstrap) as again:
        mark(three_nodes.bootstrap)
        until(
            lambda: all(values[-1:] == [END] for values in again.read().values()),
            "the end is read again",
            RECOVERY_S,
        )
    count = sum(map(len, feed.acked.values()))
    print(f"\n{library}: {count} records, {copying.killed} copiers killed, {copying.stuck} stuck, {nemesis.describe()}")
    assert copying.killed, "no copier was killed: MOLDAU_CHAOS_SECONDS is too short"
    assert nemesis.counts, "no broker had a fault: MOLDAU_CHAOS_SECONDS is too short"
    assert {each: values[:-1] for each, values in again.values.items()} == feed.acked
    assert seen.values == feed.acked, "the consumer that read during the faults got other records"


def mark(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(TARGET, END, partition=partition)
    assert producer.flush(RECOVERY_S) == 0
