"""Producers of three libraries behind one interface, each writing numbers without end in a thread of its own.

They are set up to lose and duplicate nothing (idempotent, acks=all) and to retry for as long as it takes. A refused
record is a fault, raised when the writer is closed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Self

import kafka
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from harness.patience import PATIENCE_S

PAUSE_SECONDS = 0.004
"""Some hundred records a second, so that some are always in flight."""


class Writer:
    """Writes 0, 1, 2 … to partition 0 until it is closed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.written = 0
        self.acknowledged = 0
        self.faults: list[BaseException] = []
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"{topic} {type(self).__name__}")
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Return when everything is acknowledged."""
        self.closing.set()
        self.thread.join(PATIENCE_S)
        if self.faults:
            raise self.faults[0]
        assert self.acknowledged == self.written

    def run(self) -> None:
        try:
            self.write()
        except BaseException as fault:
            self.faults.append(fault)

    def next_value(self) -> bytes:
        self.written += 1
        return str(self.written - 1).encode()

    def on_result(self, fault: BaseException | None) -> None:
        if fault is None:
            self.acknowledged += 1
        else:
            self.faults.append(fault)

    def write(self) -> None:
        raise NotImplementedError


class ConfluentWriter(Writer):
    def write(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        while not self.closing.is_set():
            producer.produce(
                self.topic,
                self.next_value(),
                partition=0,
                on_delivery=lambda error, _: self.on_result(error and _raised(error)),
            )
            producer.poll(PAUSE_SECONDS)
        assert producer.flush(PATIENCE_S) == 0


def _raised(error: Any) -> BaseException:
    return RuntimeError(str(error))


class KafkaPythonWriter(Writer):
    def write(self) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True)
        try:
            while not self.closing.is_set():
                sent = producer.send(self.topic, self.next_value(), partition=0)
                sent.add_callback(lambda _: self.on_result(None))
                sent.add_errback(self.on_result)
                time.sleep(PAUSE_SECONDS)
            producer.flush(PATIENCE_S)
        finally:
            producer.close()


class AioKafkaWriter(Writer):
    def write(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            while not self.closing.is_set():
                sent = await producer.send(self.topic, self.next_value(), partition=0)
                sent.add_done_callback(lambda done: self.on_result(done.exception()))
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.wait_for(producer.flush(), PATIENCE_S)
        finally:
            await producer.stop()


WRITERS = {"confluent": ConfluentWriter, "kafka-python": KafkaPythonWriter, "aiokafka": AioKafkaWriter}
