"""How producers write: acks, idempotence, batching, and which partition a key goes to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaProducer
from clients import CLIENTS, confluent_consumer, confluent_producer, poll_messages, run_kcat
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from harness.patience import PATIENCE_S, wait_until
from kafka.partitioner.default import murmur2

CreateTopic = Callable[..., str]
KEYS = [f"key-{n}".encode() for n in range(40)]


def murmur2_partition(key: bytes, partitions: int) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def read_all(bootstrap: str, name: str, partitions: int, count: int) -> list[Any]:
    consumer = confluent_consumer(bootstrap)
    consumer.assign([TopicPartition(name, n, OFFSET_BEGINNING) for n in range(partitions)])
    try:
        return poll_messages(consumer, count)
    finally:
        consumer.close()


def deliveries(producer: Producer, name: str, values: list[bytes], **extra: Any) -> list[Any]:
    """Return the delivered messages in order; an error of any fails the test."""
    errors: list[Any] = []
    reports: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        (errors if error else reports).append(error or message)

    for value in values:
        producer.produce(name, value, on_delivery=on_delivery, **extra)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == []
    return reports


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_with_every_acks(bootstrap: str, create_topic: CreateTopic, acks: str) -> None:
    name = create_topic()
    values = [f"{acks}-{n}".encode() for n in range(50)]
    reports = deliveries(confluent_producer(bootstrap, acks=acks), name, values, partition=0)
    assert [report.value() for report in reports] == values
    if acks != "0":
        assert [report.offset() for report in reports] == list(range(50))
    assert [message.value() for message in read_all(bootstrap, name, 1, 50)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_with_every_acks(bootstrap: str, create_topic: CreateTopic, acks: Any) -> None:
    name = create_topic()
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=False)
    offsets = [producer.send(name, b"%d" % n, partition=0).get(PATIENCE_S).offset for n in range(5)]
    producer.close()
    if acks != 0:
        assert offsets == [0, 1, 2, 3, 4]
    assert [message.value() for message in read_all(bootstrap, name, 1, 5)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_aiokafka_with_every_acks(bootstrap: str, create_topic: CreateTopic, acks: Any) -> None:
    name = create_topic()

    async def run() -> list[Any]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
            return [await producer.send_and_wait(name, b"%d" % n, partition=0) for n in range(5)]

    written = asyncio.run(run())
    if acks != 0:
        assert [metadata.offset for metadata in written] == [0, 1, 2, 3, 4]
    assert [message.value() for message in read_all(bootstrap, name, 1, 5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_confluent_idempotent_producer_writes_once_in_order(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    producer = confluent_producer(bootstrap, enable_idempotence=True, batch_num_messages=7)
    values = [b"%d" % n for n in range(500)]
    reports = deliveries(producer, name, values, partition=0)
    assert [report.offset() for report in reports] == list(range(500))
    assert [message.value() for message in read_all(bootstrap, name, 1, 500)] == values


def test_kafka_python_idempotent_producer(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, batch_size=100)
    futures = [producer.send(name, b"%d" % n, partition=0) for n in range(200)]
    assert [future.get(PATIENCE_S).offset for future in futures] == list(range(200))
    producer.close()


def test_aiokafka_idempotent_producer(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()

    async def run() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            futures = [await producer.send(name, b"%d" % n, partition=0) for n in range(200)]
            return [metadata.offset for metadata in await asyncio.gather(*futures)]

    assert asyncio.run(run()) == list(range(200))


def test_two_idempotent_producers_do_not_disturb_each_other(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    first = confluent_producer(bootstrap, enable_idempotence=True)
    second = confluent_producer(bootstrap, enable_idempotence=True)
    for n in range(5):
        deliveries(first, name, [b"first-%d" % n], partition=0)
        deliveries(second, name, [b"second-%d" % n], partition=0)
    expected = [b"%s-%d" % (who, n) for n in range(5) for who in (b"first", b"second")]
    assert [message.value() for message in read_all(bootstrap, name, 1, 10)] == expected


def test_lingering_keeps_the_order(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    producer = confluent_producer(bootstrap, linger_ms=20, compression_type="lz4")
    values = [b"%06d" % n for n in range(3000)]
    reports = deliveries(producer, name, values, partition=0)
    assert [report.offset() for report in reports] == list(range(3000))
    assert [message.value() for message in read_all(bootstrap, name, 1, 3000)] == values


def test_recompressed_batches_keep_their_order(bootstrap: str, create_topic: CreateTopic) -> None:
    """Large batches, several in flight, which the broker recompresses in a thread, and then small ones."""
    name = create_topic(config={"compression.type": "gzip"})
    producer = confluent_producer(bootstrap, enable_idempotence=True, linger_ms=5, batch_num_messages=2000)
    values = [b"%06d" % n for n in range(30_000)]
    reports = deliveries(producer, name, values[:-3], partition=0)
    for value in values[-3:]:
        reports += deliveries(producer, name, [value], partition=0)
    assert [report.offset() for report in reports] == list(range(30_000))
    assert [message.value() for message in read_all(bootstrap, name, 1, 30_000)] == values


def test_one_request_may_carry_many_partitions(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=5)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
    futures = [producer.send(name, b"%d" % n, partition=n % 5) for n in range(50)]
    assert sorted(future.get(PATIENCE_S).offset for future in futures) == sorted(list(range(10)) * 5)
    producer.close()


@pytest.mark.parametrize("writer", ["kafka-python", "aiokafka", "confluent"])
def test_keys_go_where_java_clients_send_them(bootstrap: str, create_topic: CreateTopic, writer: str) -> None:
    name = create_topic(partitions=4)
    expected = {key: murmur2_partition(key, 4) for key in KEYS}
    if writer == "kafka-python":
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
        for future in [producer.send(name, b"v", key=key) for key in KEYS]:
            future.get(PATIENCE_S)
        producer.close()
    elif writer == "aiokafka":

        async def run() -> None:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as aio:
                await asyncio.gather(*[aio.send_and_wait(name, b"v", key=key) for key in KEYS])

        asyncio.run(run())
    else:
        librdkafka = confluent_producer(bootstrap, partitioner="murmur2_random")
        for key in KEYS:
            librdkafka.produce(name, b"v", key=key)
        assert librdkafka.flush(PATIENCE_S) == 0
    assert {m.key(): m.partition() for m in read_all(bootstrap, name, 4, len(KEYS))} == expected


@pytest.mark.parametrize("partitioner", ["consistent", "consistent_random", "murmur2", "fnv1a"])
def test_same_key_same_partition(bootstrap: str, create_topic: CreateTopic, partitioner: str) -> None:
    name = create_topic(partitions=4)
    producer = confluent_producer(bootstrap, partitioner=partitioner)
    for key in KEYS * 2:
        producer.produce(name, b"v", key=key)
    assert producer.flush(PATIENCE_S) == 0
    homes: dict[bytes, set[int]] = {}
    for message in read_all(bootstrap, name, 4, 2 * len(KEYS)):
        homes.setdefault(message.key(), set()).add(message.partition())
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len(set.union(*homes.values())) == 4


def test_keyless_messages_spread_over_all_partitions(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    producer = confluent_producer(bootstrap, partitioner="random", sticky_partitioning_linger_ms=0)
    reports = deliveries(producer, name, [b"v"] * 200)
    assert set(Counter(report.partition() for report in reports)) == {0, 1, 2}


def test_kcat_spreads_keyless_messages_too(bootstrap: str, create_topic: CreateTopic, kcat: str) -> None:
    name = create_topic(partitions=2)
    run_kcat(bootstrap, ["-P", "-t", name, "-X", "sticky.partitioning.linger.ms=0"], b"line\n" * 100)
    assert {message.partition() for message in read_all(bootstrap, name, 2, 100)} == {0, 1}


def test_partitions_added_while_a_producer_runs(bootstrap: str, create_topic: CreateTopic, admin: Any) -> None:
    """The producer was started with one partition; after its next metadata refresh it uses both."""
    name = create_topic(partitions=1)
    producer = confluent_producer(
        bootstrap, partitioner="random", sticky_partitioning_linger_ms=0, topic_metadata_refresh_interval_ms=50
    )
    assert {report.partition() for report in deliveries(producer, name, [b"before"] * 10)} == {0}
    admin.create_partitions([NewPartitions(name, 2)])[name].result(PATIENCE_S)
    used: set[int] = set()

    def uses_both() -> bool:
        used.update(report.partition() for report in deliveries(producer, name, [b"after"]))
        return used == {0, 1}

    wait_until(uses_both, "the producer uses both partitions")
    assert len(CLIENTS["confluent"].consume(bootstrap, name, 10)) == 10
