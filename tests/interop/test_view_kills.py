"""Consumers of views read and commit while the broker and its view workers are killed. In the end they have read the
records that an oracle in plain Python selects from the source.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from harness.depth import DEPTH
from harness.patience import PATIENCE_S, wait_until
from harness.view_oracle import Seen, condition, selection
from view_broker import ViewBroker
from view_readers import Read, read_by_confluent

pytest.importorskip("duckdb")
pytestmark = [
    pytest.mark.moldau_only,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc"),
]
SEED = 27
ROUNDS = 4 if DEPTH > 1 else 2
RECORDS = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROTOCOLS: tuple[dict[str, object], ...] = ({"session.timeout.ms": 6000}, {"group.protocol": "consumer"})
PROPERTIES = {
    "log_cleaner_backoff_ms": 200,
    "group_initial_rebalance_delay_ms": 0,
    # A member that cannot leave, because the broker is down, keeps its partitions for this long.
    "group_consumer_session_timeout_ms": 10_000,
    "group_consumer_min_session_timeout_ms": 10_000,
}
TABLE_CONFIGS = {
    "cleanup_policy": "compact",
    "segment_ms": "300",
    "min_cleanable_dirty_ratio": "0.01",
}
VALUES = (0, 1, 5, 12, -3, 2.5, "x", "Anna", "bob", "12", "it's", "", True, False, None, [1], 10**6)


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


class Oracle:
    """A random view, and what it shows."""

    def __init__(self, rng: random.Random) -> None:
        where, self._matches = condition(rng, 2)
        self.configs = {"where": where}
        self._select: Callable[[Any], dict[str, Any]] | None = None
        if rng.random() < 0.5:
            self.configs["select"], self._select = selection(rng)

    def shown(self, record: Read) -> Read | None:
        fields: dict[str, Any] = {}
        if record.value is not None:
            try:
                fields = json.loads(record.value)
            except ValueError:
                return None
        key = None if record.key is None else record.key.decode()
        seen = Seen(fields, key, record.offset, record.partition, record.timestamp)
        if self._matches(seen) is not True:
            return None
        if self._select is None or record.value is None:
            return record
        return record._replace(value=json.dumps(self._select(seen)).encode())


def normal(record: Read) -> Read:
    """The record with its JSON normalized, and numbers as doubles."""
    try:
        value = json.loads(record.value or b"null", parse_int=float)
    except ValueError:
        return record
    return record._replace(value=json.dumps(value, sort_keys=True).encode())


class Reader(threading.Thread):
    """Reads a view and commits; it closes its consumer now and then, and the next one resumes from the commit."""

    def __init__(
        self, bootstrap: str, source: str, oracle: Oracle, isolation: str, protocol: dict[str, object], seed: int
    ) -> None:
        super().__init__(name=f"{source}-{isolation}", daemon=True)
        self.source = source
        self.oracle = oracle
        self.isolation = isolation
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers of {self.view}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
            **protocol,
        }
        self._rng = random.Random(seed)
        self.found: dict[tuple[int, int], Read] = {}
        self.committed: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        """The position in each partition, also behind records that are not shown."""
        self.wrong: list[str] = []
        self.is_over = False

    @property
    def view(self) -> str:
        return self.name

    def run(self) -> None:
        while not self.is_over:
            consumer = Consumer(self._config)
            begun: dict[int, int] = {}
            # A member that was away for too long joins again and begins where it committed.
            consumer.subscribe([self.view], on_assign=lambda *_, begun=begun: begun.clear())
            for _ in range(self._rng.randint(10, 80)):
                message = consumer.poll(0.1)
                if self.is_over:
                    break
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self._take(message, begun)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.positions[message.partition()] = message.offset()
                elif error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                    self.wrong.append(f"{self.name}: {error}")
                if begun and self._rng.random() < 0.2:
                    self._commit(consumer)
            consumer.close()

    def _take(self, message: Any, begun: dict[int, int]) -> None:
        partition, offset = message.partition(), message.offset()
        at_least = max(begun.get(partition, 0), self.committed.get(partition, 0))
        if offset < at_least:
            self.wrong.append(f"{self.name} is shown {offset} of {partition} again, it was at {at_least}")
        begun[partition] = offset + 1
        read = Read(partition, offset, message.timestamp()[1], message.key(), message.value())
        if self.found.setdefault((partition, offset), read) != read:
            self.wrong.append(f"{self.name} is shown {read}, it was {self.found[partition, offset]}")

    def _commit(self, consumer: Consumer) -> None:
        try:
            committed = consumer.commit(asynchronous=False)
        except KafkaException:
            return  # the broker is down, or the group rebalances: it may be stored or not
        for each in committed or ():
            if each.error is None and each.offset >= 0:
                self.committed[each.partition] = max(self.committed.get(each.partition, 0), each.offset)


def random_record(rng: random.Random) -> tuple[bytes, bytes | None]:
    fields: dict[str, Any] = {name: rng.choice(VALUES) for name in ("a", "b", "user", "flag") if rng.random() < 0.8}
    if rng.random() < 0.5:
        fields["deep"] = {name: rng.choice(VALUES) for name in ("a", "user")}
    chance = rng.random()
    value = None if chance < 0.1 else b"{no" if chance < 0.13 else json.dumps(fields).encode()
    return f"key-{rng.randrange(20)}".encode(), value


class Writer:
    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self._rng = rng
        config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 9, "log_level": 0}
        self._plain = [Producer(config | {"compression.type": codec}) for codec in CODECS]
        self._transactional = Producer(config | {"transactional.id": "writer", "compression.type": "lz4"})
        self._transactional.init_transactions(PATIENCE_S)

    def write(self) -> None:
        producer = self._rng.choice(self._plain)
        for topic in ("plain", "table"):
            for _ in range(RECORDS):
                key, value = random_record(self._rng)
                producer.produce(topic, value, key)
        self._transactional.begin_transaction()
        for _ in range(RECORDS // 3):
            key, value = random_record(self._rng)
            self._transactional.produce("mixed", value, key)
        assert self._transactional.flush(PATIENCE_S) == 0
        if self._rng.random() < 0.4:
            self._transactional.abort_transaction(PATIENCE_S)
        else:
            self._transactional.commit_transaction(PATIENCE_S)
        assert producer.flush(PATIENCE_S) == 0


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    found = {
        index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=PATIENCE_S)[1]
        for index in partitions
    }
    consumer.close()
    return found


def test_readers_get_the_records_of_the_oracle_though_broker_and_workers_are_killed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with ViewBroker(tmp_path, **PROPERTIES) as broker:
        broker.create("plain", 2)
        broker.create("mixed", 1)
        broker.create("table", 1, **TABLE_CONFIGS)
        readers: list[Reader] = []
        for source in ("plain", "mixed", "table"):
            for isolation in ("read_committed", "read_uncommitted"):
                protocol = PROTOCOLS[(len(readers) + len(readers) // 2) % 2]
                reader = Reader(broker.bootstrap, source, Oracle(rng), isolation, protocol, rng.randrange(1000))
                broker.create_view(reader.view, source, **reader.oracle.configs)
                readers.append(reader)
        writer = Writer(broker.bootstrap, rng)
        for reader in readers:
            reader.start()
        workers_killed = 0
        for round_ in range(ROUNDS):
            writer.write()
            if round_ % 3 == 1:
                broker.kill()
                broker.start()
            else:
                wait_until(broker.workers, "a worker evaluates a view")
                workers_killed += broker.kill_workers()
        writer.write()
        assert workers_killed
        for reader in readers:
            read_to_the_end(broker, reader)
        for reader in readers:
            reader.is_over = True
        for reader in readers:
            reader.join(PATIENCE_S)
            compare(broker, reader)


def read_to_the_end(broker: ViewBroker, reader: Reader) -> None:
    wanted = {index: end for index, end in ends(broker.bootstrap, reader.source).items() if end}
    wait_until(
        lambda: all(reader.positions.get(index, 0) >= end for index, end in wanted.items()),
        lambda: f"{reader.name} at {wanted}: {reader.positions} {reader.wrong}",
        lambda: (len(reader.found), tuple(reader.positions.items())),
    )


def compare(broker: ViewBroker, reader: Reader) -> None:
    assert reader.wrong == []
    records = read_by_confluent(broker.bootstrap, reader.source, **{"isolation.level": reader.isolation})
    shown = {
        (each.partition, each.offset): normal(expected)
        for each in records
        if (expected := reader.oracle.shown(each)) is not None
    }
    found = {place: normal(read) for place, read in reader.found.items()}
    if reader.source != "table":
        assert found == shown
    else:  # what was removed since may have been read before
        assert {place: found.get(place) for place in shown} == shown
