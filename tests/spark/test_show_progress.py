"""The progress display of real streaming queries: while they run, when they end, fail or are interrupted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness.patience import SPARK_PATIENCE_S
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import moldau.spark
from moldau.spark.progress.showing import show

ROWS = 3000


@pytest.fixture(scope="module")
def filled(bootstrap: str, create_topic: Callable[[int], str]) -> str:
    name = create_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(ROWS):
        producer.produce(name, str(number))
    assert producer.flush(SPARK_PATIENCE_S) == 0
    return name


Start = Callable[..., StreamingQuery]


@pytest.fixture
def start(spark: SparkSession, bootstrap: str, filled: str, tmp_path: Path) -> Start:
    def started(**trigger: object) -> StreamingQuery:
        kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": filled, "startingOffsets": "earliest"}
        rows = spark.readStream.format("moldau").options(**kafka, maxOffsetsPerTrigger="1000").load()
        writer = rows.writeStream.format("noop").queryName("counts").option("checkpointLocation", str(tmp_path))
        return writer.trigger(**trigger).start() if trigger else writer.start()  # type: ignore[arg-type]

    return started


class RecordingScreen:
    """A screen that records its lines, and calls `do` at the first line that contains `on`."""

    def __init__(self, on: str = "", do: Callable[[], None] = lambda: None) -> None:
        self.lines: list[str] = []
        self._on, self._do = on, do

    def show(self, line: str, now_s: float) -> None:
        self.lines.append(line)
        if self._on and self._on in line:
            self._on = ""
            self._do()

    def end(self, line: str) -> None:
        self.lines.append(line)


def test_a_query_that_ends_is_shown_as_finished(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    moldau.spark.show_progress(start(availableNow=True))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("counts: finished · batch 2 (")
    assert last.endswith(f"s) · {ROWS:,} rows in · lag 0")


def test_an_interrupt_ends_the_display_and_not_the_query(start: Start) -> None:
    query = start()
    screen = RecordingScreen(f"{ROWS:,} rows in", lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    try:
        show(query, None, screen)
        assert screen.lines[-1].startswith("counts: running · batch ")
        assert screen.lines[-1].endswith(" · lag 0 (the query continues; its stop() ends it)")
        assert query.isActive
        assert query.exception() is None
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        query.stop()


def test_the_display_ends_after_its_timeout_in_another_thread(start: Start) -> None:
    query = start()
    screen = RecordingScreen()
    looking = threading.Thread(target=show, args=(query, 0.5, screen))
    looking.start()
    looking.join(SPARK_PATIENCE_S)
    try:
        assert not looking.is_alive()
        assert screen.lines[-1].endswith("(the query continues; its stop() ends it)")
        assert query.isActive
    finally:
        query.stop()


def test_a_query_that_fails_is_shown_with_the_reason(spark: SparkSession, bootstrap: str) -> None:
    kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": "no-such-topic"}
    rows = spark.readStream.format("moldau").options(**kafka).schema("value binary").load()
    screen = RecordingScreen()
    show(rows.writeStream.format("noop").start(), None, screen)
    assert screen.lines[-1].startswith("query ")
    assert ": failed · There is no topic no-such-topic at " in screen.lines[-1]
