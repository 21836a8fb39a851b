"""Clients that run while faults are injected: idempotent producers, readers and a group, each in a thread of its own.

They know nothing of the faults. What they send, get acknowledged or read goes into the history.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from chaos_history import History, Place, Read, Value, decode
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

SEND_EVERY_S = 0.03
RECORDS_AT_ONCE = 6
POLL_S = 0.1
DRAIN_PATIENCE_S = 90.0
LEAVE_PATIENCE_S = 30.0
DELIVERY_MS = 300_000
"""Longer than any fault: a producer with retries must not report an error."""
SOON = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 250,
    "socket.timeout.ms": 3000,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,
}
"""By default librdkafka waits a minute for a broker that does not answer, which is too long here."""
LEGAL_ERRORS = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
}
"""Errors that librdkafka reports for broken connections, as after every killed broker."""


def read_to_end(bootstrap: str, topics: Mapping[str, int], **settings: str) -> dict[tuple[str, int], list[Read]]:
    """Read all partitions of these topics from the beginning up to the current end with a new consumer."""
    more = {name.replace("_", "."): value for name, value in settings.items()}
    base = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **SOON, **more}
    consumer = Consumer(base | {"auto.offset.reset": "error", "enable.partition.eof": True})
    places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
    ends = {each: consumer.get_watermark_offsets(TopicPartition(*each), timeout=30)[1] for each in places}
    found: dict[tuple[str, int], list[Read]] = {place: [] for place in places}
    consumer.assign([TopicPartition(*place, 0) for place in places])
    left, last_progress_s = set(places), time.monotonic()
    while left:
        assert time.monotonic() - last_progress_s < DRAIN_PATIENCE_S, f"could not read to the end of {left} of {ends}"
        message: Any
        for message in consumer.consume(1000, POLL_S):
            where = (message.topic(), message.partition())
            if message.error() is None:
                found[where].append(Read(Place(where[1], message.offset()), decode(message.value())))
                last_progress_s = time.monotonic()
            elif message.error().code() == KafkaError._PARTITION_EOF and message.offset() >= ends[where]:
                left.discard(where)
    consumer.close()
    return found


class Load:
    """Producers, readers and a group on one topic, until `finish`."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, producers: int = 2, readers: int = 2, members: int = 2
    ) -> None:
        self.history = History()
        self.faults: list[str] = []
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._sending, self._reading = threading.Event(), threading.Event()
        self._sending.set()
        self._reading.set()
        self._senders = [self._thread(self._send, number) for number in range(producers)]
        self._readers = [self._thread(self._read, f"reader {number}") for number in range(readers)]
        self._readers += [self._thread(self._share, f"member {number}") for number in range(members)]
        self._is_shared = members > 0

    def __enter__(self) -> Self:
        for thread in (*self._senders, *self._readers):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._reading.clear()  # closed first, so that running producers do not wait for it
        self._sending.clear()
        self._join((*self._senders, *self._readers))

    def _join(self, threads: Iterable[threading.Thread]) -> None:
        for thread in threads:
            thread.join(DRAIN_PATIENCE_S + LEAVE_PATIENCE_S)
            if thread.is_alive():
                fault = f"{thread.name} does not end: maybe a deadlock in librdkafka, see its issue 5476"
                self.faults.append(fault)
                print(fault, flush=True)

    def acks(self) -> dict[int, int]:
        """Return how many records were acknowledged, by partition."""
        with self.history.lock:
            return {partition: self.history.acks_by_partition[partition] for partition in range(self._partitions)}

    def finish(self) -> History:
        """Stop the producers, let the readers reach the end, and read the whole topic once more."""
        self._sending.clear()
        self._join(self._senders)
        assert not self.faults, self.faults[:5]
        self._read_all()
        self._await_readers()
        self._reading.clear()
        self._join(self._readers)
        assert not self.faults, self.faults[:5]
        return self.history

    def _thread(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as fault:
                self.faults.append(f"{work.__name__} {arguments}: {fault!r}")

        return threading.Thread(target=run, name=f"{work.__name__} {arguments}", daemon=True)

    def _send(self, producer_number: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 5,
             "message.timeout.ms": DELIVERY_MS, "request.timeout.ms": 3000, "error_cb": self._on_error, **SOON}
        )  # fmt: skip
        number = 0
        while self._sending.is_set():
            for _ in range(RECORDS_AT_ONCE):
                self._send_one(producer, Value(producer_number, number), number % self._partitions)
                number += 1
            producer.poll(SEND_EVERY_S)
        left = producer.flush(DRAIN_PATIENCE_S if self._reading.is_set() else 0)
        assert not left, f"{left} records were never acknowledged"

    def _send_one(self, producer: Producer, value: Value, partition: int) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.history.failed.append((value, str(error)))
                self.faults.append(f"producer {value.producer}: {error}")
            elif message.offset() is None:
                self.history.acknowledge_somewhere(partition, value)
            else:
                self.history.acknowledge(Place(message.partition(), message.offset()), value)

        self.history.sent[partition].add(value)
        producer.produce(self._topic, value.encode(), partition=partition, on_delivery=delivered)

    def _read(self, name: str) -> None:
        consumer = Consumer(self._consumer("unused") | {"enable.auto.commit": False, "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(self._partitions)])
        self._poll(consumer, self.history.polls[name])

    def _share(self, name: str) -> None:
        settings = {"auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
        settings |= {"auto.commit.interval.ms": 300, "client.id": name}
        consumer = Consumer(self._consumer("shared") | settings)
        consumer.subscribe([self._topic])
        self._poll(consumer, self.history.shared)

    def _consumer(self, group: str) -> dict[str, Any]:
        base = {"bootstrap.servers": self._bootstrap, "group.id": group, "fetch.wait.max.ms": 100}
        return base | {"error_cb": self._on_error} | SOON

    def _poll(self, consumer: Consumer, found: list[Read]) -> None:
        try:
            while self._reading.is_set():
                message: Any
                for message in consumer.consume(500, POLL_S):
                    if message.error() is None:
                        place = Place(message.partition(), message.offset())
                        found.append(Read(place, decode(message.value())))
                    else:
                        self._on_error(message.error())
        finally:
            consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() not in LEGAL_ERRORS:
            self.faults.append(f"client error: {error}")

    def _read_all(self) -> None:
        """Read from the beginning up to the current end with a new consumer."""
        logs = read_to_end(self._bootstrap, {self._topic: self._partitions})
        self.history.final.update({partition: reads for (_, partition), reads in logs.items()})

    def _await_readers(self) -> None:
        """Wait while the readers make progress; the checks find those that do not reach the end."""
        wanted = self.history.acked.keys()
        deadline = time.monotonic() + DRAIN_PATIENCE_S
        while time.monotonic() < deadline and not self.faults:
            lists = [*self.history.polls.values(), *([self.history.shared] if self._is_shared else [])]
            if all(wanted <= {read.place for read in list(reads)} for reads in lists):
                return
            time.sleep(0.2)
