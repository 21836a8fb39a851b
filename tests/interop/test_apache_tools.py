"""Apache Kafka's own tools against our broker and our files: they must work as with Apache Kafka.

Set MOLDAU_TEST_KAFKA_LIBS to a directory of Apache Kafka's jars (kafka-tools and what it needs); java must be on the
PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S

from moldau.testing import TestBroker, broker

KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
pytestmark = [
    pytest.mark.moldau_only,
    pytest.mark.skipif(not KAFKA_LIBS, reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars"),
    pytest.mark.skipif(not shutil.which("java"), reason="no java on the PATH"),
]
TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as started:
        yield started


def tool(name: str, *words: str, stdin: str = "", status: int | None = 0) -> str:
    """Return what an Apache tool prints to stdout."""
    command = ["java", "-cp", f"{KAFKA_LIBS}/*", f"{TOOLS}.{name}", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert status is None or done.returncode == status, done.stderr
    return done.stdout


def test_kafka_topics_creates_alters_describes_and_deletes(running: TestBroker) -> None:
    def topics(*words: str) -> str:
        return tool("TopicCommand", "--bootstrap-server", running.bootstrap_servers, *words)

    created = topics("--create", "--topic", "course", "--partitions", "2", "--config", "retention.ms=100000")
    assert "Created topic course." in created
    assert topics("--list").split() == ["course"]
    topics("--alter", "--topic", "course", "--partitions", "3")
    described = topics("--describe", "--topic", "course").splitlines()
    assert "PartitionCount: 3" in described[0]
    assert "Configs: retention.ms=100000" in described[0]
    assert [line.split("\t")[2] for line in described[1:]] == ["Partition: 0", "Partition: 1", "Partition: 2"]
    topics("--delete", "--topic", "course")
    assert topics("--list").split() == []


def test_console_clients_and_dump_log_read_our_records(running: TestBroker) -> None:
    address = ["--bootstrap-server", running.bootstrap_servers, "--topic", "console"]
    parse = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    tool("ConsoleProducer", *address, *parse, stdin="a:1\nb:2\nc:3\n")
    shown = tool(
        "consumer.ConsoleConsumer", *address, "--partition", "0", "--offset", "earliest", "--max-messages", "3",
        "--formatter-property", "print.key=true",
    )  # fmt: skip
    assert shown.splitlines() == ["a\t1", "b\t2", "c\t3"]
    dumped = tool("DumpLogSegments", "--print-data-log", "--files", segment(running.data_dir / "console-0"))
    assert "isvalid: true" in dumped
    assert [line.rpartition("key: ")[2] for line in dumped.splitlines() if line.startswith("|")] == [
        "a payload: 1",
        "b payload: 2",
        "c payload: 3",
    ]


def test_indexes_pass_the_sanity_check_after_a_clean_stop(tmp_path: Path) -> None:
    with broker(tmp_path, log_index_interval_bytes="0") as stopped:
        address = ["--bootstrap-server", stopped.bootstrap_servers, "--topic", "indexed"]
        tool("ConsoleProducer", *address, "--sync", stdin="".join(f"{n}\n" for n in range(50)))
    log = Path(segment(tmp_path / "indexed-0"))
    for index in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
        assert index.stat().st_size > 0
        dumped = tool("DumpLogSegments", "--index-sanity-check", "--files", str(index))
        assert "passed sanity check" in dumped


def test_dump_log_decodes_our_metadata_log(running: TestBroker) -> None:
    tool("TopicCommand", "--bootstrap-server", running.bootstrap_servers, "--create", "--topic", "dumped-topic")
    log = segment(running.data_dir / "__cluster_metadata-0")
    dumped = tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", log)
    for record in ("LeaderChange", "FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "PARTITION_RECORD"):
        assert record in dumped
    assert '"name":"dumped-topic"' in dumped


def segment(directory: Path) -> str:
    return str(directory / "00000000000000000000.log")


def test_the_console_consumer_reads_a_view_to_its_end(running: TestBroker) -> None:
    """Kafka's TopicCommand knows only Kafka's configs, so another admin client creates the view."""
    pytest.importorskip("duckdb")
    admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
    view = {"moldau.view.from": "numbers", "moldau.view.where": "a in (3, 50)"}
    for new in (NewTopic("numbers", 1, 1), NewTopic("few", -1, -1, config=view)):
        admin.create_topics([new], operation_timeout=PATIENCE_S)[new.topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": running.bootstrap_servers, "batch.num.messages": 5})
    for number in range(100):
        producer.produce("numbers", f'{{"a": {number}}}'.encode())
    producer.flush(PATIENCE_S)
    address = ["--bootstrap-server", running.bootstrap_servers]
    reading = [*address, "--topic", "few", "--from-beginning", "--group", "readers", "--timeout-ms", "30000"]
    shown = tool("consumer.ConsoleConsumer", *reading, "--isolation-level", "read_committed", status=None)
    assert shown.splitlines() == ['{"a": 3}', '{"a": 50}']
    described = tool("consumer.group.ConsumerGroupCommand", *address, "--describe", "--group", "readers")
    (line,) = (each for each in described.splitlines() if "few" in each.split())
    assert line.split()[3:6] == ["100", "100", "0"], (
        "the committed offset is also past the records that the view filters out"
    )
