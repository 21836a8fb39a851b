"""Group consumers of three libraries behind one interface, each reading in a thread of its own.

It has `Reader` and one class per library, `FLAVOURS` (library and protocol by name), and functions that wait for a
group's state. Members of a group must all be polled while it rebalances, hence the threads. It contains no assertions
about behaviour.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import kafka
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from confluent_kafka import Consumer, KafkaError
from harness.patience import PATIENCE_S, wait_until

POLL_SECONDS = 0.05
KAFKA_PYTHON_POLL_MS = 2000
"""Its poll also runs the rebalance, and gives up what is not done by its timeout."""
Partitions = frozenset[tuple[str, int]]


class Read(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: bytes


class Reader:
    """Subscribes and reads until it is closed. Closing commits what was read and, unless it is static, leaves."""

    POLLS_OF_REST = 20
    """So many polls without records take a second or more: five heartbeats, which tell of a rebalance."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str] | str, **config: Any) -> None:
        """Topics are a list of names or a pattern."""
        self.bootstrap, self.group, self.topics, self.config = bootstrap, group, topics, config
        self.found: list[Read] = []
        self.assigned: Partitions = frozenset()
        self.assignments = 0
        self.polls = 0
        self.fault: BaseException | None = None
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"{group} {type(self).__name__}")
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self) -> None:
        try:
            self.read()
        except BaseException as error:
            self.fault = error

    def close(self) -> None:
        self.closing.set()
        self.thread.join(PATIENCE_S)
        if self.fault is not None:
            raise self.fault

    def count_assignment(self) -> None:
        """Called by the library after each rebalance, even if the assignment is unchanged."""
        self.assignments += 1

    def read(self) -> None:
        raise NotImplementedError


class ConfluentReader(Reader):
    def read(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "fetch.wait.max.ms": 100,
        }
        if self.config.get("group.protocol") != "consumer":
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        consumer = Consumer(settings | self.config)
        wanted = [f"^{self.topics}"] if isinstance(self.topics, str) else list(self.topics)
        consumer.subscribe(wanted, on_assign=lambda *_: self.count_assignment())
        try:
            while not self.closing.is_set():
                message: Any
                for message in consumer.consume(500, POLL_SECONDS):
                    if (error := message.error()) is not None:
                        assert error.code() == KafkaError.REBALANCE_IN_PROGRESS, error
                        continue  # A group changed its protocol while a JoinGroup waited: librdkafka joins again.
                    self.found.append(Read(message.topic(), message.partition(), message.offset(), message.value()))
                self.assigned = frozenset((each.topic, each.partition) for each in consumer.assignment())
                self.polls += 1
        finally:
            consumer.close()


class KafkaPythonReader(Reader):
    POLLS_OF_REST = 2

    def read(self) -> None:
        settings = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 500,
            "fetch_max_wait_ms": 100,
        }
        consumer = kafka.KafkaConsumer(**(settings | self.config))
        listener = Listener(self)
        if isinstance(self.topics, str):
            consumer.subscribe(pattern=self.topics, listener=listener)
        else:
            consumer.subscribe(topics=list(self.topics), listener=listener)
        try:
            while not self.closing.is_set():
                try:
                    polled = consumer.poll(timeout_ms=KAFKA_PYTHON_POLL_MS)
                except kafka.errors.KafkaConnectionError:
                    continue  # Its poll fails when the node it asks for the coordinator is just gone.
                for records in polled.values():
                    self.found += [Read(each.topic, each.partition, each.offset, each.value) for each in records]
                self.assigned = frozenset((each.topic, each.partition) for each in consumer.assignment())
                self.polls += 1
        finally:
            consumer.close()


class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.reader.count_assignment()

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass


class AioListener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.reader.count_assignment()

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass


class AioKafkaReader(Reader):
    def read(self) -> None:
        asyncio.run(self.read_in_loop())

    async def read_in_loop(self) -> None:
        settings = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 500,
            "fetch_max_wait_ms": 100,
        }
        consumer = AIOKafkaConsumer(**(settings | self.config))
        if isinstance(self.topics, str):
            consumer.subscribe(pattern=self.topics, listener=AioListener(self))
        else:
            consumer.subscribe(topics=list(self.topics), listener=AioListener(self))
        await consumer.start()
        try:
            while not self.closing.is_set():
                polled = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
                for records in polled.values():
                    self.found += [Read(each.topic, each.partition, each.offset, each.value) for each in records]
                self.assigned = frozenset((each.topic, each.partition) for each in consumer.assignment())
                self.polls += 1
        finally:
            await consumer.stop()


class Flavour(NamedTuple):
    reader: type[Reader]
    config: dict[str, Any]

    def open(self, bootstrap: str, group: str, topics: Sequence[str] | str, **config: Any) -> Reader:
        return self.reader(bootstrap, group, topics, **(self.config | config))


FLAVOURS = {
    "confluent-range": Flavour(ConfluentReader, {"partition.assignment.strategy": "range"}),
    "confluent-roundrobin": Flavour(ConfluentReader, {"partition.assignment.strategy": "roundrobin"}),
    "confluent-cooperative": Flavour(ConfluentReader, {"partition.assignment.strategy": "cooperative-sticky"}),
    "confluent-consumer": Flavour(ConfluentReader, {"group.protocol": "consumer"}),
    "kafka-python": Flavour(KafkaPythonReader, {}),
    "aiokafka": Flavour(AioKafkaReader, {}),
}


def until(condition: Callable[[], Any], what: str, readers: Sequence[Reader]) -> None:
    """Wait until the condition holds; a reader that failed ends the wait."""

    def seen() -> list[str]:
        return [f"{sorted(reader.assigned)}, {len(reader.found)} read" for reader in readers]

    def holds() -> Any:
        for reader in readers:
            if reader.fault is not None:
                raise reader.fault
        return condition()

    wait_until(holds, lambda: f"{what}: {seen()}")


def shares(readers: Sequence[Reader]) -> list[int]:
    """Return how many partitions each has, in descending order; -1 comes first while two have the same partition."""
    claimed = [len(reader.assigned) for reader in readers]
    overlap = sum(claimed) != len(frozenset().union(*(reader.assigned for reader in readers)))
    return [-1] * overlap + sorted(claimed, reverse=True)


def await_shares(readers: Sequence[Reader], expected: list[int]) -> None:
    until(lambda: shares(readers) == expected, f"the members share the partitions as {expected}", readers)


def await_rest(readers: Sequence[Reader]) -> None:
    """Wait until no reader gets another assignment while each polls for a while: a cooperative group rebalances twice,
    and the second time changes nothing for some members."""

    def assignments() -> list[int]:
        return [reader.assignments for reader in readers]

    before: list[int] = []
    while before != assignments():
        before, ends = assignments(), [reader.polls + reader.POLLS_OF_REST for reader in readers]
        until(
            lambda ends=ends: all(reader.polls >= end for reader, end in zip(readers, ends, strict=True)),
            "all readers poll",
            readers,
        )


def await_values(readers: Sequence[Reader], count: int) -> list[bytes]:
    """Return what all have read together, in order, once that many records were read."""
    until(lambda: sum(len(reader.found) for reader in readers) >= count, f"{count} records are read", readers)
    return sorted(read.value for reader in readers for read in reader.found)


def close_all(readers: Sequence[Reader]) -> None:
    """Close all readers before the first fault, if any, is raised."""
    for reader in readers:
        reader.closing.set()
    for reader in readers:
        reader.thread.join(PATIENCE_S)
    for reader in readers:
        reader.close()
