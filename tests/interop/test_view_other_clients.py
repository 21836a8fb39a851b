"""Views read by kcat and by Apache Kafka's own Java consumer.

Set MOLDAU_TEST_KAFKA_LIBS to a directory of Apache Kafka's jars (kafka-tools and what it needs); java must be on the
PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until

pytest.importorskip("duckdb")
pytestmark = pytest.mark.moldau_only
KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
needs_java = [
    pytest.mark.skipif(not KAFKA_LIBS, reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars"),
    pytest.mark.skipif(not shutil.which("java"), reason="no java on the PATH"),
]
RECORDS = 400
SHOWN = [number for number in range(RECORDS) if number % 100 > 95]
"""The last record of the source is shown: a client that has read so many records has read everything."""
LAST_OF_OFFSETS = RECORDS + 1
"""Behind the transactions: each ends with a marker."""


@pytest.fixture(scope="module")
def view(bootstrap: str, admin: AdminClient, create_topic: Callable[..., str], topic: Callable[[], str]) -> str:
    """A view of a committed transaction, and of an aborted one with the same values behind it."""
    source, name = create_topic(1), topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "batch.num.messages": 7})
    producer.init_transactions(PATIENCE_S)
    for is_committed in (True, False):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(source, json.dumps({"a": number % 100, "id": number}).encode(), f"k{number}".encode())
        assert producer.flush(PATIENCE_S) == 0
        if is_committed:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    configs = {"moldau.view.from": source, "moldau.view.where": "a > 95", "moldau.view.select": "id"}
    new = NewTopic(name, num_partitions=-1, replication_factor=-1, config=configs)
    admin.create_topics([new], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
    wait_until(lambda: name in admin.list_topics(timeout=PATIENCE_S).topics, f"the view {name}")
    return name


def output(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


COMMITTED = [(number, f"k{number}", {"id": number}) for number in SHOWN]
ABORTED = [(LAST_OF_OFFSETS + number, f"k{number}", {"id": number}) for number in SHOWN]


@pytest.mark.skipif(not shutil.which("kcat"), reason="no kcat on the PATH")
@pytest.mark.parametrize(
    ("isolation", "shown"), [("read_committed", COMMITTED), ("read_uncommitted", [*COMMITTED, *ABORTED])]
)
def test_kcat_reads_a_view_to_its_end(bootstrap: str, view: str, isolation: str, shown: list[object]) -> None:
    command = ["kcat", "-b", bootstrap, "-C", "-t", view, "-o", "beginning", "-e", "-q", "-f", "%o\t%k\t%s\n"]
    lines = output([*command, "-X", f"isolation.level={isolation}", "-X", "check.crcs=true"])
    assert [_parsed(*line.split("\t")) for line in lines] == shown


def _parsed(offset: str, key: str, value: str) -> tuple[int, str, object]:
    return int(offset), key, json.loads(value)


class TestJava:
    pytestmark = needs_java

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    @pytest.mark.parametrize(
        ("isolation", "shown"), [("read_committed", COMMITTED), ("read_uncommitted", [*COMMITTED, *ABORTED])]
    )
    def test_kafka_console_consumer_reads_a_view(
        self, bootstrap: str, view: str, isolation: str, shown: list[object], protocol: str
    ) -> None:
        lines = output(
            [
                *self._tool("consumer.ConsoleConsumer"),
                *("--bootstrap-server", bootstrap, "--topic", view, "--from-beginning"),
                *("--isolation-level", isolation, "--max-messages", str(len(shown))),
                *("--consumer-property", f"group.protocol={protocol}"),
                *("--formatter-property", "print.offset=true", "--formatter-property", "print.key=true"),
            ]
        )
        records = [line.removeprefix("Offset:").split("\t") for line in lines if line.startswith("Offset:")]
        assert [_parsed(*record) for record in records] == shown

    def test_kafka_get_offsets_shows_the_offsets_of_the_source(self, bootstrap: str, view: str) -> None:
        (line,) = output([*self._tool("GetOffsetShell"), "--bootstrap-server", bootstrap, "--topic", view])
        assert line == f"{view}:0:{2 * LAST_OF_OFFSETS}"

    @staticmethod
    def _tool(name: str) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return ["java", "-cp", f"{KAFKA_LIBS}/*", quiet, f"org.apache.kafka.tools.{name}"]
