"""The main job in one go: a broker, a topic, three Kafka clients that never heard of each other.

    make demo

Starts a broker on a free port, lets confluent-kafka produce orders with keys, headers and compression, reads them with
confluent-kafka, kafka-python and aiokafka, and checks that all three saw the same. Exit status 0 means they did.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import aiokafka
import kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from moldau.testing import broker

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 20_000
BOOKS = ("The Trial", "The Castle", "Amerika", "The Metamorphosis", "In the Penal Colony")
Seen = Counter[tuple[int, bytes | None]]
"""How many records of each partition and key a client read."""


def orders() -> Iterator[tuple[bytes, bytes]]:
    for number in range(RECORDS):
        reader = f"reader-{number % 97}"
        yield (
            reader.encode(),
            json.dumps({"order": number, "reader": reader, "book": BOOKS[number % len(BOOKS)]}).encode(),
        )


def create(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()


def produce(address: str, tick: Callable[[], None]) -> None:
    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "compression.type": "zstd", "log_level": 0}
    )

    def delivered(error: object, _: object) -> None:
        if error:
            raise SystemExit(f"not delivered: {error}")
        tick()

    for key, value in orders():
        producer.produce(TOPIC, value, key, headers={"source": b"demo"}, on_delivery=delivered)
        producer.poll(0)
    producer.flush()


def read_with_confluent(address: str) -> Seen:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    seen: Seen = Counter()
    while seen.total() < RECORDS:
        for message in consumer.consume(5000, 10.0):
            seen[message.partition(), message.key()] += 1
    consumer.close()
    return seen


def read_with_kafka_python(address: str) -> Seen:
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([kafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
    seen: Seen = Counter()
    while seen.total() < RECORDS:
        for records in consumer.poll(10_000).values():
            seen.update((record.partition, record.key) for record in records)
    consumer.close()
    return seen


def read_with_aiokafka(address: str) -> Seen:
    async def read() -> Seen:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
        consumer.assign([aiokafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        await consumer.start()
        seen: Seen = Counter()
        while seen.total() < RECORDS:
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                seen.update((record.partition, record.key) for record in records)
        await consumer.stop()
        return seen

    return asyncio.run(read())


READERS = {
    "confluent-kafka": read_with_confluent,
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
}


def main() -> int:
    console = Console()
    started = time.perf_counter()
    with broker() as running:
        address = running.bootstrap_servers
        console.print(f"broker at [bold]{address}[/] ready after {time.perf_counter() - started:.2f} s")
        create(address)
        with Progress(console=console) as progress:
            task = progress.add_task(f"producing {RECORDS:,} orders", total=RECORDS)
            produce(address, lambda: progress.advance(task))
        table = Table("client", "records", "seconds", *(f"in p{index}" for index in range(PARTITIONS)))
        views = []
        for client, read in READERS.items():
            begin = time.perf_counter()
            seen = read(address)
            views.append(seen)
            shares = Counter(dict.fromkeys(range(PARTITIONS), 0))
            for (index, _), count in seen.items():
                shares[index] += count
            row = [f"{shares[index]:,}" for index in range(PARTITIONS)]
            table.add_row(client, f"{seen.total():,}", f"{time.perf_counter() - begin:.2f}", *row)
        console.print(table)
    if any(view != views[0] for view in views):
        console.print("[red]the clients did not see the same records[/]")
        return 1
    console.print(
        "All three clients saw the same records. Next: [bold].venv/bin/moldau start[/], then in another terminal\n"
        "  bin/kafka-topics.sh --create --topic my-topic --bootstrap-server localhost:9092",
        soft_wrap=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
