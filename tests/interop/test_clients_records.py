"""Records are read back unchanged: nulls, empty keys and values, headers, timestamps, sizes."""

from __future__ import annotations

from collections.abc import Callable

import kafka
import pytest
from batches import now_ms
from clients import CLIENTS, Message, confluent_consumer, confluent_producer, poll_messages, run_kcat
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition
from harness.patience import PATIENCE_S

CreateTopic = Callable[..., str]
LIBRARIES = ("confluent", "kafka-python", "aiokafka")
"""CLIENTS without kcat, which cannot write timestamps, nor write or show all bytes and headers."""
KEYS_AND_VALUES = [
    Message(b"", b""),
    Message(b"k", b""),
    Message(None, b""),
    Message(b"", b"v"),
    Message(b"k", None),
    Message(b"\x00\xff\x80", bytes(range(256))),
]


@pytest.mark.parametrize("writer", LIBRARIES)
def test_null_and_empty_are_distinguished(bootstrap: str, create_topic: CreateTopic, writer: str) -> None:
    name = create_topic()
    CLIENTS[writer].produce(bootstrap, name, KEYS_AND_VALUES)
    for reader in LIBRARIES:
        found = CLIENTS[reader].consume(bootstrap, name, len(KEYS_AND_VALUES))
        assert [(message.key, message.value) for message in found] == [(m.key, m.value) for m in KEYS_AND_VALUES], (
            reader
        )


def test_a_record_with_neither_key_nor_value(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    CLIENTS["confluent"].produce(bootstrap, name, [Message(None, None)])
    for reader in CLIENTS.values():
        assert reader.consume(bootstrap, name, 1)[0][:3] == (None, None, ())


@pytest.mark.parametrize("writer", ["confluent", "aiokafka"])  # kafka-python sends no null as the value of a header
def test_headers_keep_order_duplicates_nulls_and_odd_names(
    bootstrap: str, create_topic: CreateTopic, writer: str
) -> None:
    headers = (("a", b"1"), ("b", None), ("a", b""), ("žluť", b"\x00\xff"), ("", b"no name"), ("a", b"1"))
    name = create_topic()
    CLIENTS[writer].produce(bootstrap, name, [Message(b"k", b"v", headers), Message(b"k", b"none")])
    for reader in LIBRARIES:
        found = CLIENTS[reader].consume(bootstrap, name, 2)
        assert [message.headers for message in found] == [headers, ()], reader


@pytest.mark.parametrize("writer", LIBRARIES)
def test_create_time_is_set_by_the_producer(bootstrap: str, create_topic: CreateTopic, writer: str) -> None:
    start = now_ms()
    stamps = [start - 1000, start - 5000, start, start - 1]
    name = create_topic()
    CLIENTS[writer].produce(bootstrap, name, [Message(None, b"v", (), stamp) for stamp in stamps])
    for reader in CLIENTS.values():
        assert [message.timestamp for message in reader.consume(bootstrap, name, len(stamps))] == stamps


def test_log_append_time_is_set_by_the_broker(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic(config={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    CLIENTS["confluent"].produce(
        bootstrap, name, [Message(None, b"v", (), 1000), Message(None, b"w", (), 2000)], "gzip"
    )
    after = now_ms()
    for client in CLIENTS.values():
        for message in client.consume(bootstrap, name, 2):
            assert message.timestamp is not None
            assert before <= message.timestamp <= after


@pytest.mark.parametrize(
    ("config", "kind"), [("CreateTime", TIMESTAMP_CREATE_TIME), ("LogAppendTime", TIMESTAMP_LOG_APPEND_TIME)]
)
def test_consumers_see_the_timestamp_type(bootstrap: str, create_topic: CreateTopic, config: str, kind: int) -> None:
    name = create_topic(config={"message.timestamp.type": config})
    CLIENTS["kafka-python"].produce(bootstrap, name, [Message(None, b"v")])
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
    assert poll_messages(consumer, 1)[0].timestamp()[0] == kind
    consumer.close()


def test_kcat_reads_log_append_time(bootstrap: str, create_topic: CreateTopic, kcat: str) -> None:
    name = create_topic(config={"message.timestamp.type": "LogAppendTime"})
    CLIENTS["aiokafka"].produce(bootstrap, name, [Message(None, b"v")])
    shown = run_kcat(bootstrap, ["-C", "-t", name, "-p", "0", "-o", "beginning", "-c", "1", "-q", "-J"])
    assert b'"tstype":"logappend"' in shown


@pytest.mark.parametrize("client", LIBRARIES)
def test_a_message_of_almost_a_megabyte_is_accepted(bootstrap: str, create_topic: CreateTopic, client: str) -> None:
    """confluent-kafka sends at most 1,000,000 bytes by default. The broker accepts 1048588 (max.message.bytes)."""
    payload = bytes(range(256)) * 3900  # 998,400 bytes
    name = create_topic()
    CLIENTS[client].produce(bootstrap, name, [Message(b"k", payload), Message(b"k", b"next")])
    assert [message.value for message in CLIENTS[client].consume(bootstrap, name, 2)] == [payload, b"next"]


def test_a_topic_may_allow_larger_messages(bootstrap: str, create_topic: CreateTopic) -> None:
    payload = bytes(range(256)) * (3 << 12)  # 3 MiB, more than a consumer's default of 1 MiB a partition
    name = create_topic(config={"max.message.bytes": str(4 << 20)})
    producer = confluent_producer(bootstrap, message_max_bytes=5 << 20)
    producer.produce(name, payload, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert CLIENTS["confluent"].consume(bootstrap, name, 1)[0].value == payload
    assert CLIENTS["kafka-python"].consume(bootstrap, name, 1)[0].value == payload
    assert CLIENTS["aiokafka"].consume(bootstrap, name, 1)[0].value == payload


def test_a_message_over_the_limit_is_refused(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic(config={"max.message.bytes": "1000"})
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        producer.send(name, b"x" * 2000, partition=0).get(PATIENCE_S)
    assert producer.send(name, b"x" * 100, partition=0).get(PATIENCE_S).offset == 0
    producer.close()
