"""One member of a group as a process of its own: notes what it read in a file, then commits it.

    python group_member.py FLAVOUR BOOTSTRAP GROUP TOPIC FILE

A line is `partition offset`, written and flushed before the offset can be committed: who is killed may have noted more
than it committed, never less. SIGTERM is the orderly end. `joined` and `left` are told on standard output.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import IO, Any

POLL_SECONDS = 0.1
SESSION_MS = 6_000
COMMIT_MS = 300


class Told:
    """Whether the process was told to stop."""

    def __init__(self) -> None:
        self.to_stop = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.to_stop = True


def confluent(bootstrap: str, group: str, topic: str, notes: IO[str], told: Told, **config: Any) -> None:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": COMMIT_MS,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if config.get("group.protocol") != "consumer":
        settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
    consumer = Consumer(settings | config)
    consumer.subscribe([topic], on_assign=lambda *_: print("joined", flush=True))
    while not told.to_stop:
        message: Any
        for message in consumer.consume(100, POLL_SECONDS):
            if message.error() is None:
                notes.write(f"{message.partition()} {message.offset()}\n")
                notes.flush()
                store(consumer, message)
    consumer.close()


def store(consumer: Any, message: Any) -> None:
    """What was noted may be committed, unless the partition went elsewhere meanwhile."""
    from confluent_kafka import KafkaException

    try:
        consumer.store_offsets(message)
    except KafkaException as error:
        if error.args[0].name() != "_STATE":
            raise


def kafka_python(bootstrap: str, group: str, topic: str, notes: IO[str], told: Told) -> None:
    import kafka

    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        auto_commit_interval_ms=COMMIT_MS,
        reconnect_backoff_max_ms=500,
    )
    print("joined", flush=True)
    while not told.to_stop:
        try:
            polled = consumer.poll(timeout_ms=500)
        except kafka.errors.KafkaConnectionError:
            continue  # the broker is down: this client lets a poll fail by it, and goes on with the next
        for records in polled.values():
            notes.writelines(f"{each.partition} {each.offset}\n" for each in records)
        notes.flush()
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, notes: IO[str], told: Told) -> None:
    asyncio.run(_aiokafka(bootstrap, group, topic, notes, told))


async def _aiokafka(bootstrap: str, group: str, topic: str, notes: IO[str], told: Told) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        auto_commit_interval_ms=COMMIT_MS,
    )
    await consumer.start()
    print("joined", flush=True)
    while not told.to_stop:
        for records in (await consumer.getmany(timeout_ms=200)).values():
            notes.writelines(f"{each.partition} {each.offset}\n" for each in records)
        notes.flush()
    await consumer.stop()


FLAVOURS: dict[str, Any] = {
    "confluent-range": lambda *ask: confluent(*ask, **{"partition.assignment.strategy": "range"}),
    "confluent-cooperative": lambda *ask: confluent(*ask, **{"partition.assignment.strategy": "cooperative-sticky"}),
    "confluent-consumer": lambda *ask: confluent(*ask, **{"group.protocol": "consumer"}),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def main() -> None:
    flavour, bootstrap, group, topic, path = sys.argv[1:]
    told = Told()
    with open(path, "a") as notes:
        FLAVOURS[flavour](bootstrap, group, topic, notes, told)
    print("left", flush=True)


if __name__ == "__main__":
    main()
