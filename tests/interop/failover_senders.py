"""Producers of four libraries behind one interface, each sending numbers in a thread or process of its own.

All use acks=all, are idempotent and retry without limit, as their libraries do by default or by one setting; records
that they cannot deliver are errors. It contains no assertions about behaviour.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from typing import Any, ClassVar, Self

import kafka
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from harness.patience import PATIENCE_S

EVERY_S = 0.01
KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
BROKEN_CONNECTIONS = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
"""Errors that librdkafka reports for any broker that goes away; they concern no record."""


class Sender:
    """Sends 0, 1, 2, … to the partitions in turn until it is closed, which waits for records in flight."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.acked: list[tuple[int, int]] = []
        """Partition and number."""
        self.sent = 0
        self.errors: list[str] = []
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"{type(self).__name__} to {topic}")
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        self.thread.join(PATIENCE_S)

    def run(self) -> None:
        try:
            self.send()
        except BaseException as fault:
            self.errors.append(repr(fault))

    def send(self) -> None:
        raise NotImplementedError


class ConfluentSender(Sender):
    SETTINGS: ClassVar[dict[str, Any]] = {}

    def send(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        producer = Producer(settings | self.SETTINGS | {"error_cb": self.on_error})
        while not self.closing.is_set():
            number = self.sent
            producer.produce(self.topic, b"%d" % number, partition=number % self.partitions, callback=self.delivered)
            self.sent += 1
            producer.poll(EVERY_S)
        if left := producer.flush(PATIENCE_S):
            self.errors.append(f"{left} records were not delivered")

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acked.append((message.partition(), int(message.value())))
        else:
            self.errors.append(str(error))

    def on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() not in BROKEN_CONNECTIONS:
            self.errors.append(str(error))


class KafkaPythonSender(Sender):
    def send(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","), acks="all", enable_idempotence=True, linger_ms=0
        )
        while not self.closing.wait(EVERY_S):
            number = self.sent
            sent = producer.send(self.topic, b"%d" % number, partition=number % self.partitions)
            sent.add_callback(lambda metadata, number=number: self.acked.append((metadata.partition, number)))
            sent.add_errback(lambda error: self.errors.append(repr(error)))
            self.sent += 1
        producer.flush(PATIENCE_S)
        producer.close()


class AioKafkaSender(Sender):
    def send(self) -> None:
        asyncio.run(self.send_in_loop())

    async def send_in_loop(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True)
        await producer.start()
        sent = []
        while not self.closing.is_set():
            number = self.sent
            future = await producer.send(self.topic, b"%d" % number, partition=number % self.partitions)
            sent.append(asyncio.create_task(self.delivered(future, number)))
            self.sent += 1
            await asyncio.sleep(EVERY_S)
        await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        await producer.stop()

    async def delivered(self, future: Any, number: int) -> None:
        try:
            self.acked.append(((await future).partition, number))
        except Exception as error:  # any error is reported
            self.errors.append(repr(error))


class JavaSender(Sender):
    """Apache Kafka's own client in its VerifiableProducer, which can set neither partitions nor retries."""

    SETTINGS = """
retries=2147483647
enable.idempotence=true
linger.ms=0
partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner
"""

    def send(self) -> None:
        words = ["VerifiableProducer", "--bootstrap-server", self.bootstrap, "--topic", self.topic, "--acks", "-1",
                 "--throughput", str(int(1 / EVERY_S))]  # fmt: skip
        with java(words, self.SETTINGS) as process:
            threading.Thread(target=self.end_when_closing, args=[process], daemon=True).start()
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line) if line.startswith("{") else {"name": ""}
                if event["name"] == "producer_send_success":
                    self.acked.append((event["partition"], int(event["value"])))
                elif event["name"] == "producer_send_error":
                    self.errors.append(line)

    def end_when_closing(self, process: subprocess.Popen[str]) -> None:
        self.closing.wait()
        process.terminate()


def java(words: list[str], properties: str) -> subprocess.Popen[str]:
    """Start an Apache tool that reports in lines of JSON; its properties are its standard input."""
    command = ["java", "-Xmx128M", "-cp", f"{KAFKA_LIBS}/*", f"org.apache.kafka.tools.{words[0]}", *words[1:]]
    read_end, write_end = os.pipe()
    os.write(write_end, properties.encode())
    os.close(write_end)
    command += ["--command-config", f"/dev/fd/{read_end}"]
    try:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, pass_fds=[read_end]
        )
    finally:
        os.close(read_end)


SENDERS: dict[str, type[Sender]] = {
    "confluent": ConfluentSender,
    "kafka-python": KafkaPythonSender,
    "aiokafka": AioKafkaSender,
    "java": JavaSender,
}
