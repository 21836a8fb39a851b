"""The tools without confluent-kafka: our stand-in for it, compared with librdkafka itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from harness.patience import PATIENCE_MS, PATIENCE_S, Patience

from moldau.client import confluent
from moldau.client.stand_in.consumer import Consumer
from moldau.client.stand_in.producer import Producer
from moldau.client.stand_in.values import KafkaError, Message, TopicPartition

CreateTopic = Callable[..., str]


def read_by_librdkafka(bootstrap: str, topic: str, count: int) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "judge"})
    partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, each, confluent_kafka.OFFSET_BEGINNING) for each in partitions]
    )
    read = consumer.consume(count, PATIENCE_S)
    consumer.close()
    return read


def read_until_end(consumer: Consumer) -> list[Message]:
    """Read up to the end of the only assigned partition."""
    read: list[Message] = []
    patience = Patience(lambda: f"the end of the partition after {len(read)} records")
    while True:
        patience.check(len(read))
        message = consumer.poll(1)
        if message is not None and (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            return read
        if message is not None:
            read.append(message)


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    made = Consumer({"bootstrap.servers": bootstrap, "enable.partition.eof": True, "isolation.level": "read_committed"})
    yield made
    made.close()


def test_the_stand_in_has_all_names_that_the_tools_use() -> None:
    """In a process of its own, without confluent_kafka."""
    code = "import moldau.client.confluent as c; print(*(getattr(c, n).__class__.__name__ for n in sorted(c.__all__)))"
    found = without_confluent_kafka(sys.executable, "-c", code)
    assert found.stderr == ""
    assert len(found.stdout.split()) == len(confluent.__all__)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_the_records_of_the_stand_in(bootstrap: str, create_topic: CreateTopic, codec: str) -> None:
    topic = create_topic(partitions=3)
    reports: list[tuple[int, int | None]] = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
    for number in range(100):
        producer.produce(
            topic,
            b"value %d" % number if number % 7 else None,
            b"key %d" % (number % 10),
            on_delivery=lambda error, message: reports.append((message.partition(), message.offset())),
            timestamp=1_700_000_000_000 + number,
            headers=[("number", b"%d" % number), ("nothing", None)],
        )
    assert producer.flush(PATIENCE_S) == 0
    read = read_by_librdkafka(bootstrap, topic, 100)
    assert sorted((each.partition(), each.offset()) for each in read) == sorted(reports)
    by_number = {int(dict(each.headers() or [])["number"]): each for each in read}
    for number, each in by_number.items():
        assert each.value() == (b"value %d" % number if number % 7 else None)
        assert each.key() == b"key %d" % (number % 10)
        assert each.timestamp() == (1, 1_700_000_000_000 + number)
        assert each.headers() == [("number", b"%d" % number), ("nothing", None)]


def test_a_key_has_the_same_partition_as_with_librdkafka(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=7)
    keys = [b"x" * length + bytes([length]) for length in range(40)]
    producer = Producer({"bootstrap.servers": bootstrap})
    judge = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, b"ours", key)
        judge.produce(topic, b"theirs", key)
    assert producer.flush(PATIENCE_S) == judge.flush(PATIENCE_S) == 0
    partitions = {(each.value(), each.key()): each.partition() for each in read_by_librdkafka(bootstrap, topic, 80)}
    assert [partitions[b"ours", key] for key in keys] == [partitions[b"theirs", key] for key in keys]


def test_a_record_that_is_too_large_is_reported_and_the_next_one_delivered(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(config={"max.message.bytes": "1000"})
    errors: list[str | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in (b"small", b"x" * 2_000, b"small again"):
        producer.produce(
            topic, value, on_delivery=lambda error, _: errors.append(None if error is None else error.name())
        )
        assert producer.flush(PATIENCE_S) == 0
    assert errors == [None, "MSG_SIZE_TOO_LARGE", None]


def test_records_of_aborted_transactions_are_left_out(
    bootstrap: str, create_topic: CreateTopic, consumer: Consumer
) -> None:
    topic = create_topic()
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    plain = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    writer.init_transactions(PATIENCE_S)
    for turn, ends in enumerate(("commit", "abort", "abort", "commit")):
        writer.begin_transaction()
        for number in range(3):
            writer.produce(topic, f"{turn} {number} {ends}")
            writer.flush(PATIENCE_S)
            plain.produce(topic, f"{turn} {number} plain")
            plain.flush(PATIENCE_S)
        (writer.commit_transaction if ends == "commit" else writer.abort_transaction)(PATIENCE_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [(each.value() or b"").decode() for each in read_until_end(consumer)]
    expected = [
        f"{turn} {number} {kind}"
        for turn, ends in enumerate(("commit", "abort", "abort", "commit"))
        for number in range(3)
        for kind in (ends, "plain")
        if kind != "abort"
    ]
    assert values == expected


def test_reading_begins_within_a_batch_or_at_the_end_of_the_log(
    bootstrap: str, create_topic: CreateTopic, consumer: Consumer
) -> None:
    topic = create_topic()
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "compression.type": "zstd"})
    for number in range(10):
        writer.produce(topic, str(number))
    writer.flush(PATIENCE_S)
    consumer.assign([TopicPartition(topic, 0, 7)])
    assert [each.value() for each in read_until_end(consumer)] == [b"7", b"8", b"9"]
    consumer.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_END)])
    assert read_until_end(consumer) == []
    consumer.assign([TopicPartition(topic, 0, 99)])
    assert read_until_end(consumer) == [], "an offset that does not exist: reading starts at the end"


def test_two_members_share_a_topic_and_the_one_that_stays_continues(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=4)
    first, second = GroupReader(bootstrap, topic), GroupReader(bootstrap, topic)
    poll_until(lambda: len(first.partitions_held) == len(second.partitions_held) == 2, first, second)
    assert first.partitions_held | second.partitions_held == {0, 1, 2, 3}
    write_one_to_each(bootstrap, topic, "before")
    poll_until(lambda: len(first.values | second.values) == 4, first, second)
    first.values.clear()
    second.consumer.close()
    poll_until(lambda: len(first.partitions_held) == 4, first)
    after = [b"after %d" % partition for partition in range(4)]
    write_one_to_each(bootstrap, topic, "after")
    poll_until(lambda: first.values >= set(after), first)
    assert first.values == set(after), "records committed by the other member are not read again"
    first.consumer.close()


class GroupReader:
    """A group member, its partitions and what it has read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.partitions_held: set[int] = set()
        self.values: set[bytes | None] = set()
        config = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-group", "auto.offset.reset": "earliest"}
        self.consumer = Consumer(config)
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, given: self.partitions_held.update(each.partition for each in given),
            on_revoke=lambda _, taken: self.partitions_held.difference_update(each.partition for each in taken),
        )


def poll_until(found: Callable[[], bool], *readers: GroupReader) -> None:
    patience = Patience(lambda: f"the members have the partitions {[reader.partitions_held for reader in readers]}")
    while not found():
        patience.check()
        for reader in readers:
            reader.values.update(each.value() for each in reader.consumer.consume(10, 0.1))


def write_one_to_each(bootstrap: str, topic: str, text: str) -> None:
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for partition in range(4):
        writer.produce(topic, f"{text} {partition}", partition=partition)
    assert writer.flush(PATIENCE_S) == 0


def test_the_tools_run_without_confluent_kafka(bootstrap: str, topic: Callable[[], str]) -> None:
    name = topic()
    address = ("--bootstrap-server", bootstrap)

    def tool(module: str, *words: str, stdin: str = "") -> str:
        done = without_confluent_kafka(
            sys.executable, "-m", f"moldau.cli.kafka.{module}", *words, *address, stdin=stdin
        )
        assert done.returncode == 0, done.stderr
        assert "WARNING" not in done.stderr
        return done.stdout

    def moldau(*words: str, stdin: str = "") -> str:
        done = without_confluent_kafka(sys.executable, "-m", "moldau", *words, "-b", bootstrap, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert tool("topics", "--create", "--topic", name, "--partitions", "2") == f"Created topic {name}.\n"
    assert name in tool("topics", "--list").split()
    tool("console_producer", "--topic", name, stdin="one\ntwo\n")
    moldau("produce", name, stdin="three\n")
    words = ("--from-beginning", "--max-messages", "3", "--timeout-ms", PATIENCE_MS)
    assert sorted(tool("console_consumer", "--topic", name, *words).split()) == ["one", "three", "two"]
    assert sorted(moldau("consume", name, "-g", f"{name}-group", "-e").split()) == ["one", "three", "two"]
    assert f"{name}-group" in tool("consumer_groups", "--list").split()
    assert "retention.ms=5" in tool(
        "configs", "--alter", "--entity-type", "topics", "--entity-name", name, "--add-config", "retention.ms=5"
    ) + tool("configs", "--describe", "--entity-type", "topics", "--entity-name", name)
    assert name in moldau("topic", "list")
    moldau("topic", "delete", name, "--yes")


def test_an_unknown_property_is_reported(bootstrap: str, create_topic: CreateTopic) -> None:
    words = ("--topic", create_topic(), "--command-property", "foo.bar=1", "--bootstrap-server", bootstrap)
    done = without_confluent_kafka(sys.executable, "-m", "moldau.cli.kafka.console_producer", *words, stdin="x\n")
    warning = "WARNING: the client property foo.bar has no meaning here and is ignored.\n"
    assert (done.returncode, done.stderr) == (0, warning)
    done = without_confluent_kafka(sys.executable, "-m", "moldau", "topic", "list", "-X", "foo.bar=1", "-b", bootstrap)
    assert done.returncode == 1
    assert done.stderr.startswith('moldau: No such configuration property: "foo.bar"')
    assert done.stderr.count("\n") == 1


def test_addresses_may_be_written_as_for_librdkafka(bootstrap: str) -> None:
    for address in (f"PLAINTEXT://{bootstrap}", f"{bootstrap},"):
        done = without_confluent_kafka(sys.executable, "-m", "moldau", "topic", "list", "-b", address)
        assert done.returncode == 0, done.stderr


def test_the_perf_tools_say_that_they_need_confluent_kafka(bootstrap: str) -> None:
    words = ("--topic", "t", "--num-records", "1", "--bootstrap-server", bootstrap)
    done = without_confluent_kafka(sys.executable, "-m", "moldau.cli.kafka.consumer_perf", *words)
    assert done.returncode == 1
    assert done.stderr.startswith("This tool measures with librdkafka, and confluent-kafka is not installed")


def without_confluent_kafka(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program in which confluent_kafka cannot be imported."""
    hidden = Path(__file__).parent / "hidden_packages"
    paths = [str(hidden), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, input=stdin, text=True, capture_output=True, timeout=PATIENCE_S, env=environment)
