"""Reads a topic to its end and counts: records, the bytes that came over the network, and seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 60


class Reading(NamedTuple):
    values: list[dict[str, object]]
    received_bytes: int
    seconds: float


def create(bootstrap: str, name: str, config: Mapping[str, str] | None = None) -> None:
    """Create a topic with one partition, or a view if the config says so."""
    partitions = -1 if config else 1
    new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)


def write(bootstrap: str, topic: str, values: list[dict[str, object]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for value in values:
        producer.produce(topic, json.dumps(value))
        if len(producer) > 50_000:
            producer.flush(PATIENCE_S)
    producer.flush(PATIENCE_S)


def read(bootstrap: str, topic: str, is_wanted: Callable[[dict[str, object]], bool]) -> Reading:
    received = [0]

    def on_statistics(text: str) -> None:
        received[0] = json.loads(text)["rx_bytes"]

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "views-example",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "statistics.interval.ms": 50,
            "stats_cb": on_statistics,
        }
    )
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    wanted, is_done = [], False
    while not is_done:
        for message in consumer.consume(1000, 0.05):
            if message.error():
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise SystemExit(message.error().str())
                is_done = True
            elif is_wanted(value := json.loads(message.value())):
                wanted.append(value)
    seconds = time.perf_counter() - began
    for _ in range(4):
        consumer.poll(0.05)  # the last statistics
    consumer.close()
    return Reading(wanted, received[0], seconds)


def compare(everything: Reading, view: Reading) -> None:
    print(f"reading everything  {everything.received_bytes:>12,} bytes  {everything.seconds:6.2f} s")
    print(f"reading the view    {view.received_bytes:>12,} bytes  {view.seconds:6.2f} s")
