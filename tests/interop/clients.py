"""Four independent Kafka clients behind one interface, so that a test can say "each writes, each reads".

It has `Message`, and one class per client with `produce` and `consume`. No consumer groups: all reading is by
assignment. Assertions about behaviour belong to the tests.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from harness.patience import PATIENCE_S, wait_until

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None


class Client(Protocol):
    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
        """Write to partition 0 in order and return once all are acknowledged."""

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        """Read the first `count` records of partition 0."""


def confluent_consumer(bootstrap: str, **config: Any) -> Consumer:
    """Return a consumer that never commits; the library demands a group id, which is not used."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 100,
    }
    return Consumer(settings | {name.replace("_", "."): value for name, value in config.items()})


def confluent_producer(bootstrap: str, **config: Any) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "message.timeout.ms": 30_000}
    return Producer(settings | {name.replace("_", "."): value for name, value in config.items()})


def write_values(bootstrap: str, topic: str, values: Sequence[bytes], partitions: int = 1) -> None:
    """Write values without keys to the first partitions in turn, and return once all are delivered."""
    errors: list[Any] = []
    producer = confluent_producer(bootstrap)
    for place, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=place % partitions,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert errors == []


def produce_or_raise(settings: dict[str, Any], topic: str, value: bytes) -> None:
    """Write to partition 0; raise PermissionError if the broker refuses the login."""
    errors: list[Any] = []
    producer = Producer({**settings, "error_cb": errors.append})
    delivered: list[Any] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: delivered.append(error))

    def is_over() -> bool:
        producer.poll(0.1)
        return bool(delivered) or any(error.code() == KafkaError._AUTHENTICATION for error in errors)

    wait_until(is_over, lambda: f"the record is delivered or the login refused: {errors}")
    if not delivered:
        producer.purge()
        producer.flush(PATIENCE_S)
        raise PermissionError([error.str() for error in errors])
    assert delivered == [None]


def poll_messages(consumer: Consumer, count: int) -> list[Any]:
    """Return exactly `count` messages of librdkafka; an error event or a missing message fails."""
    found: list[Any] = []
    while len(found) < count:
        batch = consumer.consume(count - len(found), timeout=PATIENCE_S)
        assert batch, f"only {len(found)} of {count} records came"
        for message in batch:
            assert message.error() is None, message.error()
        found += batch
    return found


class Confluent:
    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
        producer = confluent_producer(bootstrap, compression_type=codec)
        faults: list[Any] = []
        for message in messages:
            extra: dict[str, Any] = {} if message.timestamp is None else {"timestamp": message.timestamp}
            producer.produce(
                topic,
                partition=0,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                on_delivery=lambda error, _: faults.append(error) if error else None,
                **extra,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert not faults

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        consumer = confluent_consumer(bootstrap)
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            found = poll_messages(consumer, count)
        finally:
            consumer.close()
        return [Message(m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]) for m in found]


class KafkaPython:
    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
        )
        try:
            futures = [
                producer.send(
                    topic,
                    partition=0,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            for future in futures:
                future.get(PATIENCE_S)
        finally:
            producer.close()

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            consumer_timeout_ms=int(PATIENCE_S * 1000),
        )
        try:
            consumer.assign([kafka.TopicPartition(topic, 0)])
            found = [record for _, record in zip(range(count), consumer, strict=False)]
        finally:
            consumer.close()
        return [Message(r.key, r.value, tuple(r.headers), r.timestamp) for r in found]


class AioKafka:
    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        partition=0,
                        key=message.key,
                        value=message.value,
                        headers=list(message.headers),
                        timestamp_ms=message.timestamp,
                    )
                    for message in messages
                ]
                await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_S)
            finally:
                await producer.stop()

        asyncio.run(run())

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        async def run() -> list[Any]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=100,
            )
            await consumer.start()
            try:
                consumer.assign([AioTopicPartition(topic, 0)])
                return [await asyncio.wait_for(consumer.getone(), PATIENCE_S) for _ in range(count)]
            finally:
                await consumer.stop()

        return [Message(r.key, r.value, tuple(r.headers), r.timestamp) for r in asyncio.run(run())]


class Kcat:
    """kcat 1.7 on librdkafka 2.0: the oldest library of the four, and so an example of old clients.

    Its text interface has limits: one set of headers for all messages, and only `-Z` distinguishes empty from null.
    """

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
        headers = messages[0].headers
        assert all(message.headers == headers and message.timestamp is None for message in messages)
        lines = [(m.key or b"") + b"\t" + (m.value or b"") for m in messages]
        arguments = ["-P", "-t", topic, "-p", "0", "-Z", "-K", "\t", "-z", codec]
        for name, value in headers:
            arguments += ["-H", name if value is None else f"{name}={value.decode()}"]
        run_kcat(bootstrap, arguments, b"\n".join(lines) + b"\n")

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Message]:
        output = run_kcat(
            bootstrap, ["-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-q", "-J", "-u"]
        )
        return [self.from_json(json.loads(line)) for line in output.splitlines()]

    def from_json(self, shown: dict[str, Any]) -> Message:
        def octets(text: str | None) -> bytes | None:
            return None if text is None else text.encode()

        flat = shown.get("headers", [])
        headers = tuple((name, octets(value)) for name, value in zip(flat[::2], flat[1::2], strict=True))
        return Message(octets(shown["key"]), octets(shown["payload"]), headers, shown["ts"])


def run_kcat(bootstrap: str, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        pytest.skip("kcat is not on PATH (Debian and Ubuntu: apt-get install kcat)")
    ran = subprocess.run([path, "-b", bootstrap, *arguments], input=stdin, capture_output=True, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


CLIENTS: dict[str, Client] = {
    "confluent": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
    "kcat": Kcat(),
}
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
