"""A pipeline for the chaos tests: its input, how it is run, and the checks of its output."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from harness.patience import wait_until

from moldau.base.ids import TopicPartition as Place
from moldau.client.cluster import Cluster

SEED = int(os.environ.get("MOLDAU_CHAOS_SEED", "1"))
RECORDS = 60_000
PARTITIONS = 3
CAUGHT_UP_S = 300
TABLES = ("delta", "iceberg", "parquet")

SPEC = """
name: chaos
sources:
  numbers:
    topic: numbers
    schema: n int not null
    max_per_trigger: 4000
sinks:
  - {from: numbers, name: copy, topic: copy, key: cast(n as string)}
""" + "".join(
    f"""
  - {{from: numbers, name: {kind}, table: lake/{kind}, format: {kind}}}"""
    for kind in TABLES
)


def is_broken(number: int) -> bool:
    return number % 500 == 499


def value(number: int) -> bytes:
    return b'{"n": "broken' if is_broken(number) else b'{"n": %d}' % number


def feed(bootstrap: str, is_over: threading.Event) -> None:
    """Write numbers, a few hundred a second, and the rest at once when it is stopped."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        if number % 100 == 0:
            is_over.wait(0.2)
        producer.produce("numbers", value(number), key=b"%d" % number)
        producer.poll(0)
    assert producer.flush(30) == 0


def start(folder: Path, bootstrap: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "moldau", "pipeline", "run", str(folder / "chaos.yaml"), "-b", bootstrap, *options]
    with (folder / "run.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def read_topic(bootstrap: str, topic: str) -> list[bytes]:
    """Return what a read_committed consumer finds, once no transaction is open any more."""
    places = [Place(topic, index) for index in range(PARTITIONS)]
    with closing(Cluster(bootstrap, {})) as cluster:
        wait_until(
            lambda: cluster.latest(places, read_committed=True) == cluster.latest(places),
            f"no transaction is open in {topic}",
        )
    settings = {
        "group.id": "chaos", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0,
        "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": "read_committed", **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                values.append(message.value() or b"")
            else:
                ended.add(message.partition())
    consumer.close()
    return values


def rows(folder: Path, kind: str) -> list[int]:
    path = folder / "lake" / kind
    if kind == "parquet":
        import pyarrow.dataset

        return pyarrow.dataset.dataset(path, format="parquet", exclude_invalid_files=False).to_table()["n"].to_pylist()
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(path).to_pyarrow_table()["n"].to_pylist()
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(str(path)).scan().to_arrow()["n"].to_pylist()


@contextmanager
def writing_numbers(bootstrap: str) -> Iterator[None]:
    """Write numbers during the block; at its end, all are written."""
    is_over = threading.Event()
    feeding = threading.Thread(target=feed, args=(bootstrap, is_over))
    feeding.start()
    try:
        yield
    finally:
        is_over.set()
        feeding.join()


def finish_and_check(folder: Path, bootstrap: str) -> None:
    """Run to the end without faults; then tables and topics must hold every record once."""
    last = start(folder, bootstrap, "--until-caught-up")
    assert last.wait(CAUGHT_UP_S) == 0, (folder / "run.log").read_text()[-3000:]
    good = {number for number in range(RECORDS) if not is_broken(number)}
    for kind in TABLES:
        seen = Counter(rows(folder, kind))
        assert set(seen.values()) == {1}, f"{kind} holds a record twice"
        assert seen.keys() == good, f"{kind} lost records"
    copied = Counter(read_topic(bootstrap, "copy"))
    assert set(copied.values()) == {1}, "the topic holds a record twice"
    assert copied.keys() == {b'{"n":%d}' % number for number in good}, "the topic lost records"
    broken = read_topic(bootstrap, "numbers.dead")
    assert set(broken) == {value(499)}
    assert len(broken) == RECORDS - len(good)
