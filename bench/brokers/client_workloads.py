"""Produce, consume and end-to-end latency through librdkafka, as an application in Python sees them.

Much of the time is the client's own, which is the same for every broker: the ratios are nearer to 1.0 than those of
the brokers, and the broker's CPU time says more. Connecting is done before the clock starts.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.brokers.connection import BrokerRefused
from bench.brokers.frames import record_batch
from bench.brokers.raw_workloads import FILLED_RECORDS, FILLED_VALUE_BYTES, KIB, fill
from bench.brokers.servers import Server
from bench.brokers.topics import new_topic
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn, Workload

PARTITIONS = 4
TIMEOUT_S = 60.0
LATENCY_RATE = 500
CONSUME_AT_ONCE = 10_000
SENT_AT = struct.Struct(">d")


def client_workloads(scale: float) -> Iterator[Workload]:
    yield client_produce(100, max(1000, int(1_000_000 * scale)))
    yield client_produce(KIB, max(1000, int(300_000 * scale)), in_bytes=True)
    yield client_consume(max(2, int(500 * scale)))
    yield latency(max(1.0, 10 * scale))


def client_produce(value_bytes: int, count: int, in_bytes: bool = False) -> Workload:
    size = f"{value_bytes // KIB}KiB" if value_bytes >= KIB else f"{value_bytes}B"
    quantity = Quantity(f"client produce {size}", "MB/s" if in_bytes else "k rec/s", work_unit="record")
    value = os.urandom(value_bytes)

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, PARTITIONS, cleanup)

        def turn() -> Measured:
            failed: list[KafkaError] = []
            producer = producer_to(server, failed, {"linger.ms": 5, "batch.size": 256 * KIB})
            producer.list_topics(topic, timeout=TIMEOUT_S)
            began = time.perf_counter()
            _send(producer, topic, value, count)
            left = producer.flush(TIMEOUT_S)
            elapsed = time.perf_counter() - began
            if failed or left:
                raise BrokerRefused(f"{server.address}: {left} records not delivered, {failed[:1]}")
            return Measured(((count * value_bytes / 1e6 if in_bytes else count / 1e3) / elapsed,), count)

        return turn

    return Workload((quantity,), prepare)


def client_consume(batches: int) -> Workload:
    """Read four filled partitions from the beginning, with a new consumer each round."""
    batch = record_batch(FILLED_RECORDS, FILLED_VALUE_BYTES)
    count = batches * FILLED_RECORDS * PARTITIONS

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, PARTITIONS, cleanup)
        for partition in range(PARTITIONS):
            fill(server, topic, partition, batch, batches)

        def turn() -> Measured:
            consumer = consumer_of(server, {"queued.min.messages": 1_000_000, "fetch.message.max.bytes": 4 << 20})
            consumer.list_topics(topic, timeout=TIMEOUT_S)
            began = time.perf_counter()
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
            _receive(consumer, count)
            elapsed = time.perf_counter() - began
            consumer.close()
            return Measured((count / 1e3 / elapsed,), count)

        return turn

    return Workload((Quantity("client consume 100B", "k rec/s", work_unit="record"),), prepare)


def latency(seconds: float) -> Workload:
    """Measure from `produce()` until the consumer has the record, one record at a time at a steady rate.

    Sending never waits for the broker, so a slow broker cannot slow down the clock that measures it.
    """
    quantities = tuple(
        Quantity(f"end-to-end latency {percentile}, {LATENCY_RATE} rec/s", "ms", False, "record")
        for percentile in ("p50", "p99")
    )
    count = int(LATENCY_RATE * seconds)

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, 1, cleanup)

        def turn() -> Measured:
            latencies = _latencies(server, topic, count)
            return Measured((latencies[len(latencies) // 2] * 1e3, latencies[int(len(latencies) * 0.99)] * 1e3), count)

        return turn

    return Workload(quantities, prepare)


def _latencies(server: Server, topic: str, count: int) -> list[float]:
    """Return them sorted, without the first fifth, in which the clients still warm up."""
    failed: list[KafkaError] = []
    producer = producer_to(server, failed, {"linger.ms": 0})
    producer.list_topics(topic, timeout=TIMEOUT_S)
    consumer = consumer_of(server, {})
    _, end_offset = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    consumer.assign([TopicPartition(topic, 0, end_offset)])
    latencies: list[float] = []
    reader = threading.Thread(target=_take_latencies, args=(consumer, count, latencies), name="consumer", daemon=True)
    reader.start()
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / LATENCY_RATE - time.perf_counter()))
        producer.produce(topic, SENT_AT.pack(time.perf_counter()) + bytes(92), partition=0)
        producer.poll(0)
    producer.flush(TIMEOUT_S)
    reader.join(TIMEOUT_S)
    consumer.close()
    if failed or len(latencies) < count:
        raise BrokerRefused(f"{server.address}: {len(latencies)} of {count} records arrived, {failed[:1]}")
    return sorted(latencies[count // 5 :])


def _take_latencies(consumer: Consumer, count: int, latencies: list[float]) -> None:
    while len(latencies) < count:
        message = consumer.poll(TIMEOUT_S)
        if message is None or message.error():
            return
        latencies.append(time.perf_counter() - SENT_AT.unpack_from(message.value() or b"")[0])


def producer_to(server: Server, failed: list[KafkaError], options: dict[str, object]) -> Producer:
    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    return Producer(
        {
            "bootstrap.servers": server.address,
            "acks": "all",
            "log_level": 0,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,  # else a Python call for each record would dominate the measurement
            "on_delivery": delivered,
            **options,
        }
    )


def consumer_of(server: Server, options: dict[str, object]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "log_level": 0,
            **options,
        }
    )


def _send(producer: Producer, topic: str, value: bytes, count: int) -> None:
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.05)


def _receive(consumer: Consumer, count: int) -> None:
    received = 0
    while received < count:
        messages = consumer.consume(min(CONSUME_AT_ONCE, count - received), TIMEOUT_S)
        failed = [message.error() for message in messages if message.error()]
        if failed or not messages:
            raise BrokerRefused(f"{received} of {count} records received, {failed[:1]}")
        received += len(messages)
