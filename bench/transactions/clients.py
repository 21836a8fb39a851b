"""Applications with transactions and without, through librdkafka: producers that commit every 100 ms, and consumers
that want to see only what was committed.

A producer is idempotent on both sides and sends as fast as it can for a while, as kafka-producer-perf-test does; what
it still holds at the end is waited for. A consumer reads the same topic on both sides, to its end.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from confluent_kafka import KafkaError, Producer, TopicPartition

from bench.brokers.client_workloads import CONSUME_AT_ONCE, TIMEOUT_S, consumer_of, producer_to
from bench.brokers.connection import BrokerRefused
from bench.brokers.raw_workloads import KIB
from bench.brokers.servers import Server
from bench.brokers.topics import new_topic
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn
from bench.measuring.versus import Versus

PRODUCE_WANTED = 0.7
CONSUME_WANTED = 0.8
TRANSACTION_S = 0.1
HELD_KIB = 32 << 10
"""As much as Java's producer holds: who sends without a limit only fills memory, and no transaction takes 100 ms."""
SENT_AT_ONCE = 100
"""Between two looks at the clock."""
PARTITIONS = 3
CONSUMED_BYTES = 100
CONSUMED_TRANSACTIONS = 30
TRANSACTION_RECORDS = 20_000
"""What a producer of 200,000 records a second writes in 100 ms."""
ABORTED_EVERY = 10
MakeTopic = Callable[[Server, ExitStack], str]


def one_broker_topic(server: Server, cleanup: ExitStack) -> str:
    return new_topic(server.address, PARTITIONS, cleanup)


# --- producers -------------------------------------------------------------------------------------------------------


def produce_with_and_without(seconds: float, make_topic: MakeTopic, where: str) -> Iterator[Versus]:
    for value_bytes in (100, KIB):
        yield _produce(value_bytes, seconds, make_topic, where)


def _produce(value_bytes: int, seconds: float, make_topic: MakeTopic, where: str) -> Versus:
    size = f"{value_bytes // KIB}KiB" if value_bytes >= KIB else f"{value_bytes}B"
    name = f"produce {size} in 100 ms transactions, {where}"
    value = os.urandom(value_bytes)

    def prepare(server: Server, cleanup: ExitStack) -> tuple[Turn, Turn]:
        topic = make_topic(server, cleanup)

        def turn(is_transactional: bool) -> Measured:
            failed: list[KafkaError] = []
            producer = _new_producer(server, failed, is_transactional)
            producer.list_topics(topic, timeout=TIMEOUT_S)
            began = time.perf_counter()
            send = _send_in_transactions if is_transactional else _send_until
            sent = send(producer, topic, value, began + seconds)
            left = producer.flush(TIMEOUT_S)
            elapsed = time.perf_counter() - began
            if failed or left:
                raise BrokerRefused(f"{server.address}: {left} records not delivered, {failed[:1]}")
            return Measured((sent / 1e3 / elapsed,), sent)

        return lambda: turn(False), lambda: turn(True)

    return Versus(Quantity(name, "k rec/s", work_unit="record"), prepare, PRODUCE_WANTED)


def _new_producer(server: Server, failed: list[KafkaError], is_transactional: bool) -> Producer:
    """Ready to send: a transactional one has its producer id."""
    options: dict[str, object] = {
        "linger.ms": 5,
        "batch.size": 256 * KIB,
        "enable.idempotence": True,
        "queue.buffering.max.kbytes": HELD_KIB,
    }
    if not is_transactional:
        return producer_to(server, failed, options)
    producer = producer_to(server, failed, options | {"transactional.id": f"bench-{uuid.uuid4().hex[:12]}"})
    producer.init_transactions(TIMEOUT_S)
    return producer


def _send_in_transactions(producer: Producer, topic: str, value: bytes, until: float) -> int:
    sent = 0
    while (now := time.perf_counter()) < until:
        producer.begin_transaction()
        sent += _send_until(producer, topic, value, now + TRANSACTION_S)
        producer.commit_transaction(TIMEOUT_S)
    return sent


def _send_until(producer: Producer, topic: str, value: bytes, until: float) -> int:
    sent = 0
    while time.perf_counter() < until:
        _send(producer, topic, value, SENT_AT_ONCE)
        sent += SENT_AT_ONCE
    return sent


def _send(producer: Producer, topic: str, value: bytes, records: int) -> None:
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.002)


# --- consumers ------------------------------------------------------------------------------------------------------


class Contents(NamedTuple):
    """What a topic is filled with."""

    name: str
    is_transactional: bool
    aborted_every: int = 0

    def commits(self, number: int) -> bool:
        return not self.aborted_every or number % self.aborted_every != 0


CONTENTS = (
    Contents("a topic without transactions", False),
    Contents("100 ms transactions", True),
    Contents(f"100 ms transactions, {100 // ABORTED_EVERY} % aborted", True, ABORTED_EVERY),
)


def consume_with_and_without(scale: float) -> Iterator[Versus]:
    for contents in CONTENTS:
        yield _consume(contents, max(10, int(TRANSACTION_RECORDS * scale)))


def _consume(contents: Contents, transaction_records: int) -> Versus:
    """The rate is of all records in the log, aborted ones too: it is the same log for either side."""
    in_log = CONSUMED_TRANSACTIONS * transaction_records
    committed = sum(map(contents.commits, range(CONSUMED_TRANSACTIONS))) * transaction_records

    def prepare(server: Server, cleanup: ExitStack) -> tuple[Turn, Turn]:
        topic = one_broker_topic(server, cleanup)
        _fill(server, topic, contents, transaction_records)

        def turn(isolation: str, expected: int) -> Measured:
            elapsed = _read_to_the_end(server, topic, isolation, expected)
            return Measured((in_log / 1e3 / elapsed,), in_log)

        return lambda: turn("read_uncommitted", in_log), lambda: turn("read_committed", committed)

    quantity = Quantity(f"read_committed, {contents.name}", "k rec/s", work_unit="record")
    return Versus(quantity, prepare, CONSUME_WANTED)


def _fill(server: Server, topic: str, contents: Contents, transaction_records: int) -> None:
    failed: list[KafkaError] = []
    producer = _new_producer(server, failed, contents.is_transactional)
    value = os.urandom(CONSUMED_BYTES)
    for number in range(CONSUMED_TRANSACTIONS):
        if contents.is_transactional:
            producer.begin_transaction()
        _send(producer, topic, value, transaction_records)
        left = producer.flush(TIMEOUT_S)  # an abort would throw away what is not sent yet
        if failed or left:
            raise BrokerRefused(f"{server.address}: {left} records not delivered, {failed[:1]}")
        if contents.is_transactional:
            end = producer.commit_transaction if contents.commits(number) else producer.abort_transaction
            end(TIMEOUT_S)


def _read_to_the_end(server: Server, topic: str, isolation: str, expected: int) -> float:
    """From the first fetch until every partition's end was told; the right number of records must have come."""
    options = {
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "queued.min.messages": 1_000_000,
        "fetch.message.max.bytes": 4 << 20,
    }
    consumer = consumer_of(server, options)
    consumer.list_topics(topic, timeout=TIMEOUT_S)
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen = ended = 0
    while ended < PARTITIONS:
        messages = consumer.consume(CONSUME_AT_ONCE, 0.1)
        errors = [error for message in messages if (error := message.error())]
        is_wrong = any(error.code() != KafkaError._PARTITION_EOF for error in errors)
        if is_wrong or time.perf_counter() > began + TIMEOUT_S:
            raise BrokerRefused(f"{server.address}: {seen} of {expected} records came, {errors[:1]}")
        seen += len(messages) - len(errors)
        ended += len(errors)
    elapsed = time.perf_counter() - began
    consumer.close()
    if seen != expected:
        raise BrokerRefused(f"{server.address}: {seen} records came, and not {expected}")
    return elapsed
