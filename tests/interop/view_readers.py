"""Reads a topic with each of the client libraries, from the beginning to the end of every partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition
from harness.patience import PATIENCE_S, Patience


class Read(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_by_confluent(bootstrap: str, topic: str, **config: object) -> list[Read]:
    """To the end of every partition: the client reports that only where its position is."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"view-{topic}-{len(config)}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **config,
        }
    )
    partitions = len(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
    consumer.subscribe([topic])
    found, ended, patience = [], set(), Patience(f"{topic} read to its end")
    while len(ended) < partitions:
        message = consumer.poll(0.2)
        patience.check((len(found), len(ended)))
        if message is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
            continue
        found.append(
            Read(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value())
        )
    consumer.close()
    return sorted(found)


def read_by_kafka_python(bootstrap: str, topic: str, until: Callable[[list[Read]], bool]) -> list[Read]:
    """Read without a group: kafka-python 3.0.12 never begins to read when it joins between two calls of `poll`, as it
    does on a busy machine."""
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)])
    found: list[Read] = []
    patience = Patience(f"{topic} read by kafka-python")
    while not until(found):
        patience.check(len(found))
        for records in consumer.poll(timeout_ms=200).values():
            found += [Read(each.partition, each.offset, each.timestamp, each.key, each.value) for each in records]
    consumer.close()
    return sorted(found)


def read_by_aiokafka(bootstrap: str, topic: str, until: Callable[[list[Read]], bool]) -> list[Read]:
    from aiokafka import AIOKafkaConsumer

    async def read() -> list[Read]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=f"aio-{topic}", auto_offset_reset="earliest"
        )
        await consumer.start()
        found: list[Read] = []
        patience = Patience(f"{topic} read by aiokafka")
        try:
            while not until(found):
                patience.check(len(found))
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found.extend(
                        Read(each.partition, each.offset, each.timestamp, each.key, each.value) for each in records
                    )
        finally:
            await consumer.stop()
        return sorted(found)

    return asyncio.run(read())


def position_at_end(bootstrap: str, topic: str) -> tuple[int, int]:
    """Where a consumer that has read everything stands, and the end of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"pos-{topic}", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    patience = Patience(f"the end of {topic}")
    while True:
        message = consumer.poll(0.2)
        patience.check()
        if message is not None and message.error():
            break
    (position,) = consumer.position([TopicPartition(topic, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    consumer.close()
    return position.offset, end
