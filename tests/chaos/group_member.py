"""One group member as a process: writes what it read to a file, then commits it.

    python group_member.py FLAVOUR BOOTSTRAP GROUP TOPIC FILE

A line is `partition offset`, written and flushed before the offset can be committed: a killed member may have written
more than it committed, never less. SIGTERM is the orderly end. It prints `joined` and `left` on standard output.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import IO, Any

POLL_SECONDS = 0.1
SESSION_MS = 6_000
COMMIT_MS = 300


class StopFlag:
    """Whether the process was asked to stop."""

    def __init__(self) -> None:
        self.to_stop = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.to_stop = True


def confluent(bootstrap: str, group: str, topic: str, notes: IO[str], stop_flag: StopFlag, **config: Any) -> None:
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
    while not stop_flag.to_stop:
        message: Any
        for message in consumer.consume(100, POLL_SECONDS):
            if message.error() is None:
                notes.write(f"{message.partition()} {message.offset()}\n")
                notes.flush()
                store(consumer, message)
    consumer.close()


def store(consumer: Any, message: Any) -> None:
    """Mark what was written for the next commit, unless the partition was revoked meanwhile."""
    from confluent_kafka import KafkaException

    try:
        consumer.store_offsets(message)
    except KafkaException as error:
        if error.args[0].name() != "_STATE":
            raise


def kafka_python(bootstrap: str, group: str, topic: str, notes: IO[str], stop_flag: StopFlag) -> None:
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
    while not stop_flag.to_stop:
        try:
            polled = consumer.poll(timeout_ms=500)
        except kafka.errors.KafkaConnectionError:
            continue  # the broker is down: this client's poll fails then, and the next one may succeed
        for records in polled.values():
            notes.writelines(f"{each.partition} {each.offset}\n" for each in records)
        notes.flush()
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, notes: IO[str], stop_flag: StopFlag) -> None:
    asyncio.run(_aiokafka(bootstrap, group, topic, notes, stop_flag))


async def _aiokafka(bootstrap: str, group: str, topic: str, notes: IO[str], stop_flag: StopFlag) -> None:
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
    while not stop_flag.to_stop:
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
    stop_flag = StopFlag()
    with open(path, "a") as notes:
        FLAVOURS[flavour](bootstrap, group, topic, notes, stop_flag)
    print("left", flush=True)


if __name__ == "__main__":
    main()
