"""`__consumer_offsets` as Apache Kafka's own tools see it: they read what we write, and our kafka-dump-log prints
exactly what theirs prints.

Set MOLDAU_TEST_KAFKA_LIBS to a directory of Apache Kafka's jars (kafka-tools and what it needs); java must be on the
PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from harness.patience import PATIENCE_S

from moldau.cli.kafka.dump_log import main as dump_log
from moldau.coordinator.group.serde import encode_record
from moldau.coordinator.machine import CoordinatorRecord
from moldau.testing import TestBroker, broker
from moldau.wire.codec import encode
from moldau.wire.consumer_protocol import write
from moldau.wire.log_records import offsets as consumer
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription, TopicPartitions
from moldau.wire.log_records.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.wire.records import NEXT_OFFSET, Record, build_batch
from moldau.wire.schema import RecordKey, RecordValue

KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
pytestmark = [
    pytest.mark.moldau_only,
    pytest.mark.skipif(not KAFKA_LIBS, reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars"),
    pytest.mark.skipif(not shutil.which("java"), reason="no java on the PATH"),
]
OFFSETS_TOPIC = "__consumer_offsets"
LOG = "00000000000000000000.log"
BASE_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(1, 17))


def apache(name: str, *words: str) -> str:
    """Return what an Apache tool prints to stdout."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    java = ["java", "-Xmx256M", "-Dstdout.encoding=UTF-8", quiet, "-cp", f"{KAFKA_LIBS}/*"]
    command = [*java, f"org.apache.kafka.tools.{name}", *words]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def both_dump(capfd: pytest.CaptureFixture[str], log: Path, *flags: str) -> list[str]:
    """Return the lines of kafka-dump-log, which must be equal from both tools."""
    words = ["--files", str(log), "--offsets-decoder", *flags]
    theirs = apache("DumpLogSegments", *words).splitlines()
    assert dump_log(words) == 0
    ours = capfd.readouterr().out.splitlines()
    assert ours == theirs
    return ours


# --- records of every kind, written to a file ---------------------------------------------------------------------


def member(subscription: bytes, assignment: bytes) -> MemberMetadata:
    return MemberMetadata("m-1", "i-1", "client", "/127.0.0.1", 300_000, 45_000, subscription, assignment)


def classic_values() -> Iterator[GroupMetadataValue]:
    owned = [TopicPartitions("orders", [0, 2])]
    for version in range(4):
        subscription = write(Subscription(["orders", "clicks"], b"\0\xff", owned, 3, "rack"), version)
        assignment = write(Assignment(owned, None), version)
        yield GroupMetadataValue("consumer", version, "range", "m-1", BASE_MS, [member(subscription, assignment)])
    yield GroupMetadataValue("consumer", 5, "range", "m-1", BASE_MS, [member(b"", b""), member(b"\0", b"\0\1\0")])
    yield GroupMetadataValue("connect", 6, "sessioned", "m-1", BASE_MS, [member(write(Subscription(), 0), b"\1\2\3")])
    yield GroupMetadataValue("consumer", 7, None, None, BASE_MS, [])


def consumer_records() -> Iterator[CoordinatorRecord]:
    group = "g"
    classic = consumer.ClassicMemberMetadata(45_000, [consumer.ClassicProtocol("range", b"\0\3\xfe")])
    for metadata in (None, classic, consumer.ClassicMemberMetadata()):
        yield CoordinatorRecord(
            consumer.ConsumerGroupMemberMetadataKey(group, "m"),
            consumer.ConsumerGroupMemberMetadataValue(
                "i", None, "client", "/127.0.0.1", ["a", "b"], "a.*", 300_000, "uniform", metadata
            ),
        )
    for epoch in ((1, 0), (2, -77)):
        key, value = consumer.ConsumerGroupMetadataKey(group), consumer.ConsumerGroupMetadataValue(*epoch)
        yield CoordinatorRecord(key, value)
        target = consumer.ConsumerGroupTargetAssignmentMetadataValue(*epoch)
        yield CoordinatorRecord(consumer.ConsumerGroupTargetAssignmentMetadataKey(group), target)
    yield CoordinatorRecord(
        consumer.ConsumerGroupTargetAssignmentMemberKey(group, "m"),
        consumer.ConsumerGroupTargetAssignmentMemberValue([consumer.TopicPartition(TOPIC_ID, [0, 1])]),
    )
    owned = [consumer.TopicPartitions(TOPIC_ID, [0, 1], epochs) for epochs in ([3, 4], None, [])]
    yield CoordinatorRecord(
        consumer.ConsumerGroupCurrentMemberAssignmentKey(group, "m"),
        consumer.ConsumerGroupCurrentMemberAssignmentValue(4, 3, 1, owned, owned[:1]),
    )
    yield CoordinatorRecord(
        consumer.ConsumerGroupRegularExpressionKey(group, "a.*"),
        consumer.ConsumerGroupRegularExpressionValue(["a", "ab"], 12, BASE_MS),
    )


def records() -> Iterator[CoordinatorRecord]:
    odd = 'quoted " \\ / \t\r\n\x01\x1f\x7f \\u001f kľúč 🌊'
    yield CoordinatorRecord(OffsetCommitKey(odd, "orders", 3), OffsetCommitValue(2**40, 7, odd, BASE_MS))
    yield CoordinatorRecord(OffsetCommitKey("g", "orders", 3), OffsetCommitValue(5, -1, "", BASE_MS, -1, TOPIC_ID))
    yield CoordinatorRecord(OffsetCommitKey("g", "orders", 3), OffsetCommitValue(5, -1, "", BASE_MS, BASE_MS + 1))
    yield from (CoordinatorRecord(GroupMetadataKey("g"), value) for value in classic_values())
    yield from consumer_records()


def in_version(key: RecordKey, value: RecordValue, version: int) -> tuple[bytes, bytes]:
    written = bytearray(struct.pack(">h", version))
    encode(value, version, written)
    return encode_record(CoordinatorRecord(key, None))[0], bytes(written)


def raw_records() -> Iterator[tuple[bytes, bytes | None]]:
    for record in records():
        yield encode_record(record)
        yield encode_record(CoordinatorRecord(record.key, None))
    for version in range(5):
        yield in_version(OffsetCommitKey("g", "t", 0), OffsetCommitValue(1, 2, "m", 3, 4), version)
        yield in_version(GroupMetadataKey("g"), next(classic_values()), version)
    yield in_version(LegacyOffsetCommitKey("g", "t", 0), OffsetCommitValue(1, 2, "m", 3), 0)
    yield b"\x7f\xff", b"a record of an unknown type"
    yield b"\xff\xff", None


@pytest.mark.parametrize("flags", [[], ["--skip-record-metadata"]], ids=["with metadata", "without metadata"])
def test_both_tools_print_every_record_type_alike(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    directory = tmp_path / f"{OFFSETS_TOPIC}-0"
    directory.mkdir()
    written = [Record(NEXT_OFFSET, BASE_MS + at, key, value) for at, (key, value) in enumerate(raw_records())]
    (directory / LOG).write_bytes(build_batch(written))
    lines = [line for line in both_dump(capfd, directory / LOG, *flags) if line.startswith("|")]
    assert len(lines) == len(written)
    assert not [line for line in lines if "Error at offset" in line]
    for kind in (0, 1, 2, 3, 5, 6, 7, 8, 16):
        assert any(f'key: {{"type":"{kind}","data":' in line for line in lines), kind


def test_both_tools_skip_unreadable_records(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Both tools print the offset; the rest of the message differs."""
    key, value = encode_record(CoordinatorRecord(OffsetCommitKey("g", "t", 0), OffsetCommitValue()))
    assert value is not None
    damaged = [(key[:-1], None), (key, value[:3]), (key, b"\0\x63" + value[2:]), (key, b""), (b"\0", value)]
    batch = build_batch([Record(NEXT_OFFSET, BASE_MS, *pair) for pair in [*damaged, (key, value)]])
    (tmp_path / LOG).write_bytes(batch)
    words = ["--files", str(tmp_path / LOG), "--offsets-decoder"]
    assert dump_log(words) == 0
    for lines in (capfd.readouterr().out.splitlines(), apache("DumpLogSegments", *words).splitlines()):
        printed_records = [line for line in lines if line.startswith("|")]
        for offset, line in enumerate(printed_records[:-1]):
            assert f" key: Error at offset {offset}, skipping. " in line
            assert "payload:" not in line
        assert '"type":"1"' in printed_records[-1]


# --- what a broker writes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="0") as started:
        yield started


def read_and_commit(running: TestBroker, group: str, protocol: str) -> None:
    """Let a consumer join, read, commit with metadata and leave."""
    address = {"bootstrap.servers": running.bootstrap_servers}
    producer = Producer(address)
    producer.produce("orders", b"one")
    assert producer.flush(PATIENCE_S) == 0
    config = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    reader = Consumer({**address, **config, "enable.auto.commit": False})
    try:
        reader.subscribe(["orders"])
        read = reader.poll(PATIENCE_S)
        assert read is not None
        assert read.error() is None
        position = TopicPartition("orders", 0, read.offset() + 1, metadata="note")
        reader.commit(offsets=[position], asynchronous=False)
    finally:
        reader.close()


def formatted(running: TestBroker, formatter: str) -> list[dict[str, Any]]:
    """Return what the console consumer prints for the topic: JSON objects without separators."""
    partition = TopicPartition(OFFSETS_TOPIC, 0)
    peek = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": "peek"})
    _, end = peek.get_watermark_offsets(partition, timeout=PATIENCE_S)
    peek.close()
    printed = apache(
        "consumer.ConsoleConsumer", "--bootstrap-server", running.bootstrap_servers,
        "--topic", OFFSETS_TOPIC, "--partition", "0", "--offset", "earliest", "--max-messages", str(end),
        "--formatter", f"org.apache.kafka.tools.consumer.{formatter}",
    ).strip()  # fmt: skip
    found, decoder = [], json.JSONDecoder()
    while printed:
        value, end = decoder.raw_decode(printed)
        found.append(value)
        printed = printed[end:]
    return found


def test_kafkas_message_formatters_read_our_offsets_topic(running: TestBroker) -> None:
    read_and_commit(running, "formatted", "classic")
    key = {"type": 1, "data": {"group": "formatted", "topic": "orders", "partition": 0}}
    (offset,) = [each["value"] for each in formatted(running, "OffsetsMessageFormatter") if each["key"] == key]
    assert offset["version"] == 4
    assert offset["data"]["offset"] == 1
    assert offset["data"]["metadata"].rstrip("\0") == "note", "confluent-kafka ends it with a NUL"
    printed_records = formatted(running, "GroupMetadataMessageFormatter")
    groups = [
        one["value"]["data"] for one in printed_records if one["key"] == {"type": 2, "data": {"group": "formatted"}}
    ]
    assert [group["protocolType"] for group in groups] == ["consumer"] * len(groups)
    assert [len(group["members"]) for group in groups][-1] == 0, "the member has left the group"
    assert any(group["protocol"] == "range" and group["members"][0]["clientId"] == "rdkafka" for group in groups)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_both_tools_print_a_brokers_offsets_topic_alike(
    running: TestBroker, capfd: pytest.CaptureFixture[str], protocol: str
) -> None:
    read_and_commit(running, f"dumped-{protocol}", protocol)
    lines = both_dump(capfd, running.data_dir / f"{OFFSETS_TOPIC}-0" / LOG)
    printed_records = [line for line in lines if f"dumped-{protocol}" in line]
    kinds = {line.split('{"type":"')[1].split('"')[0] for line in printed_records}
    assert kinds >= ({"1", "2"} if protocol == "classic" else {"1", "3", "5", "6", "7", "8"})
