"""Views read by Spark's own Kafka connector, which knows nothing of Moldau, with its defaults: `failOnDataLoss` is
true, so an offset that it does not find and cannot explain fails a query.

Set MOLDAU_TEST_SPARK_KAFKA_JARS to a directory with the connector's jars (spark-sql-kafka-0-10, its token provider,
kafka-clients and commons-pool2), and MOLDAU_TEST_SPARK_KAFKA_PYTHON to a Python with the pyspark of that version.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.order_records import FIELDS, WHERE, Record, random_orders, shown_value
from harness.patience import PATIENCE_S, SPARK_PATIENCE_S, wait_until

pytest.importorskip("duckdb")
JARS = os.environ.get("MOLDAU_TEST_SPARK_KAFKA_JARS")
PYTHON = os.environ.get("MOLDAU_TEST_SPARK_KAFKA_PYTHON")
pytestmark = pytest.mark.skipif(
    not JARS or not PYTHON,
    reason="MOLDAU_TEST_SPARK_KAFKA_JARS and _PYTHON name no Spark with its own Kafka connector",
)
NOW_MS = time.time_ns() // 1_000_000
PARTITIONS = 2
Row = list[Any]
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(clean_environment: dict[str, str]) -> Iterator[Ask]:
    """A function that lets the other Spark read something and returns its response."""
    assert JARS is not None
    assert PYTHON is not None
    jars = ",".join(str(path) for path in sorted(Path(JARS).glob("*.jar")))
    command = [PYTHON, str(Path(__file__).with_name("spark_kafka_connector_reader.py")), jars]
    environment = {**clean_environment, "PYSPARK_PYTHON": PYTHON}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def answer() -> dict[str, Any]:
            watch = threading.Timer(SPARK_PATIENCE_S, process.kill)
            watch.start()
            line = answers.readline()
            watch.cancel()
            assert line, f"the other Spark ended with {process.wait(PATIENCE_S)}: see its errors above"
            found: dict[str, Any] = json.loads(line)
            return found

        def send(**work: str) -> dict[str, Any]:
            requests.write(json.dumps(work) + "\n")
            requests.flush()
            return answer()

        answer()
        yield send
        requests.close()
        process.wait(PATIENCE_S)


class Source:
    """A topic with transactions, some of them aborted, and a view of it."""

    def __init__(self, bootstrap: str, topic: str, view: str, where: str = WHERE) -> None:
        self.view = view
        self.options = {"kafka.bootstrap.servers": bootstrap, "subscribe": view, "includeHeaders": "true"}
        self.ends = [0] * PARTITIONS
        self._topic = topic
        self._rng = random.Random(view)
        self._committed: list[tuple[int, Record]] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": view, "batch.num.messages": 7})
        self._producer.init_transactions(PATIENCE_S)
        configs = {"moldau.view.from": topic, "moldau.view.where": where, "moldau.view.select": FIELDS}
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(view, -1, -1, config=configs)])[view].result(PATIENCE_S)
        wait_until(lambda: view in admin.list_topics(timeout=PATIENCE_S).topics, f"the view {view}")

    def write(self, count: int, *, is_committed: bool = True) -> None:
        """One transaction. Its end takes an offset in every partition."""
        self._producer.begin_transaction()
        for each in random_orders(self._rng, count, NOW_MS, PARTITIONS):
            self._producer.produce(
                self._topic, each.value, each.key, each.partition, timestamp=each.timestamp, headers=each.headers
            )
            if is_committed:
                self._committed.append((self.ends[each.partition], each))
            self.ends[each.partition] += 1
        assert self._producer.flush(PATIENCE_S) == 0
        if is_committed:
            self._producer.commit_transaction(PATIENCE_S)
        else:
            self._producer.abort_transaction(PATIENCE_S)
        self.ends = [end + 1 for end in self.ends]

    def shown(self) -> list[Row]:
        """What a reader of committed records gets."""
        found = []
        for offset, each in self._committed:
            value = shown_value(each)
            if value is not None:
                key = None if each.key is None else each.key.decode()
                headers = [[name, None if text is None else text.decode()] for name, text in each.headers]
                found.append([self.view, each.partition, offset, key, value, each.timestamp, headers])
        return sorted(found, key=lambda row: row[:3])


@pytest.fixture
def source(bootstrap: str, create_topic: Callable[[int], str], topic: Callable[[], str]) -> Source:
    return Source(bootstrap, create_topic(PARTITIONS), topic())


def parsed(answer: dict[str, Any]) -> list[Row]:
    rows = [[*row[:4], json.loads(row[4]), *row[5:]] for row in answer["rows"]]
    return sorted(rows, key=lambda row: row[:3])


def test_a_batch_has_the_committed_records_that_the_view_shows(ask: Ask, source: Source) -> None:
    for is_committed in (True, False, True, False):
        source.write(200, is_committed=is_committed)
    committed = {**source.options, "kafka.isolation.level": "read_committed"}
    assert parsed(ask(**committed)) == source.shown() != []
    split = ask(**committed, minPartitions="16")
    assert split["tasks"] >= 16, "tasks begin and end at offsets that the view does not show"
    assert parsed(split) == source.shown()


def test_a_batch_may_begin_and_end_at_offsets_that_the_view_does_not_show(ask: Ask, source: Source) -> None:
    source.write(300)
    shown = {tuple(row[1:3]) for row in source.shown()}
    hidden = [offset for offset in range(20, 120) if not {(0, offset), (1, offset)} & shown]
    assert hidden, "no offset is hidden in both partitions"
    for begin, end in zip(hidden[:4], reversed(hidden[-4:]), strict=True):
        starting, ending = (json.dumps({source.view: {"0": at, "1": at}}) for at in (begin, end))
        answer = ask(**source.options, startingOffsets=starting, endingOffsets=ending)
        assert parsed(answer) == [row for row in source.shown() if begin <= row[2] < end]


def test_a_restarted_stream_resumes_where_it_stopped(ask: Ask, source: Source, tmp_path: Path) -> None:
    options = {
        **source.options,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "90",
        "kafka.isolation.level": "read_committed",
        "folder": str(tmp_path),
    }
    for transactions in ((True, False), (False, True), (True,)):
        for is_committed in transactions:
            source.write(150, is_committed=is_committed)
        answer = ask(**options)
        assert answer["batches"] >= 2, "batches end at offsets that the view does not show"
        assert parsed(answer) == source.shown()


def test_a_view_without_matching_records_is_read_as_empty(
    ask: Ask, bootstrap: str, create_topic: Callable[[int], str], topic: Callable[[], str], tmp_path: Path
) -> None:
    source = Source(bootstrap, create_topic(PARTITIONS), topic(), where="amount < -1")
    source.write(300)
    assert ask(**source.options)["rows"] == []
    stream = {**source.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"}
    answer = ask(**stream, folder=str(tmp_path))
    assert answer["rows"] == []
    assert answer["batches"] >= 4
