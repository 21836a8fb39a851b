"""What the page Learn runs in the console's process: consumers that read the practice topic as one group, workers that
share its records, each in a thread, and what was seen of a compaction. `endpoints/learn` starts and stops them; all of
it ends with the user's access. Nothing outside of topics and groups that begin with `moldau-learn` is touched."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from moldau.client.properties import for_librdkafka

PRACTICE: Final = "moldau-learn"
QUEUE: Final = "moldau-learn-queue"
"""The share group of the workers."""
CONSUMERS_MAX: Final = 6
READ_RECENTLY: Final = 200
POLL_SECONDS: Final = 0.2
WORK_SECONDS: Final = 1.0
"""How long a worker has a record: somebody watches it."""
DELIVERIES_SHOWN: Final = 12
ACCEPT: Final = "accept"
FAILURES: Final = ("release", "reject")
"""What a worker may say instead."""
R = TypeVar("R", bound="PracticeReader")


@dataclass(slots=True)
class Consumption:
    """A record that a practice consumer received."""

    number: int
    partition: int
    offset: int
    key: str | None
    consumer: str

    def data(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offset": self.offset,
            "key": self.key,
            "consumer": self.consumer,
        }


class Delivery(NamedTuple):
    """A record that a worker had, and what it said of it."""

    worker: str
    partition: int
    offset: int
    key: str | None
    deliveries: int
    said: str


@dataclass
class Practice:
    """What one user practises."""

    bootstrap: str
    properties: Mapping[str, str] = field(repr=False)
    consumers: list[PracticeConsumer] = field(default_factory=list)
    received: deque[Consumption] = field(default_factory=lambda: deque(maxlen=READ_RECENTLY))
    workers: list[PracticeWorker] = field(default_factory=list)
    delivered: deque[Delivery] = field(default_factory=lambda: deque(maxlen=DELIVERIES_SHOWN))
    """The newest last."""
    failures: deque[str] = field(default_factory=lambda: deque(maxlen=READ_RECENTLY))
    """What workers are to say of the next records, instead of accepting them."""
    compaction: dict[str, Any] | None = None
    """The records before and after, as the page gets them; another object for each compaction that is begun."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False
    _number: int = 0
    _names: Counter[str] = field(default_factory=Counter)

    def set_consumers(self, count: int) -> None:
        """Start or stop consumers until there are this many; the newest stop first. None start after `close`: the user
        has logged out meanwhile."""
        self._set(self.consumers, count, "consumer", PracticeConsumer)

    def set_workers(self, count: int) -> None:
        self._set(self.workers, count, "worker", PracticeWorker)

    def _set(self, running: list[R], count: int, kind: str, make: Callable[[str, Practice], R]) -> None:
        with self._lock:
            if self._closed:
                return
            leaving = running[count:]
            del running[count:]
            while len(running) < count:
                self._names[kind] += 1
                reader = make(f"{kind}-{self._names[kind]}", self)
                running.append(reader)
                reader.start()
        _stop(leaving)
        for reader in leaving:
            reader.join(10.0)

    def next_answer(self) -> str:
        """Return what a worker says of the record that it has."""
        with self._lock:
            return self.failures.popleft() if self.failures else ACCEPT

    def note_delivery(self, delivery: Delivery) -> None:
        with self._lock:
            self.delivered.append(delivery)

    def queue_data(self) -> dict[str, Any]:
        with self._lock:
            return {
                "group": QUEUE,
                "workers": [each.data() for each in self.workers],
                "deliveries": [each._asdict() for each in reversed(self.delivered)],
                "failures": list(self.failures),
            }

    def note(self, consumer: str, partition: int, offset: int, key: bytes | None) -> None:
        with self._lock:
            self._number += 1
            self.received.append(Consumption(self._number, partition, offset, _text(key), consumer))

    def received_after(self, number: int) -> list[Consumption]:
        with self._lock:
            return [each for each in self.received if each.number > number]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            leaving = [*self.consumers, *self.workers]
            self.consumers, self.workers = [], []
        _stop(leaving)


def _stop(readers: Iterable[PracticeReader]) -> None:
    for reader in readers:
        reader.stop()


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode(errors="replace")[:100]


class PracticeReader(threading.Thread):
    """Whoever reads the practice topic, in a thread."""

    def __init__(self, name: str, practice: Practice) -> None:
        super().__init__(name=name, daemon=True)
        self._practice = practice
        self._stopped = threading.Event()
        self.state = "starting"
        self.count = 0

    def stop(self) -> None:
        self._stopped.set()

    def _config(self, group: str) -> dict[str, Any]:
        return {
            **for_librdkafka(dict(self._practice.properties)),
            "bootstrap.servers": self._practice.bootstrap,
            "group.id": group,
            "client.id": self.name,
            "topic.metadata.refresh.interval.ms": 2000,
        }


class PracticeConsumer(PracticeReader):
    """A consumer of the practice group."""

    def __init__(self, name: str, practice: Practice) -> None:
        super().__init__(name, practice)
        self.partitions: list[int] = []

    def run(self) -> None:
        from moldau.client.confluent import Consumer, without_log

        consumer = Consumer(
            {
                **self._config(PRACTICE),
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "auto.commit.interval.ms": 1000,
                **without_log(),
            }
        )
        try:
            consumer.subscribe([PRACTICE], on_assign=self._on_assign, on_revoke=self._on_revoke)
            while not self._stopped.is_set():
                message = consumer.poll(POLL_SECONDS)
                if message is None:
                    continue
                if message.error():
                    time.sleep(POLL_SECONDS)
                    continue
                self.count += 1
                self._practice.note(self.name, message.partition() or 0, message.offset() or 0, message.key())
        finally:
            self.state = "stopped"
            consumer.close()

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.state = "running"
        self.partitions = sorted(each.partition for each in partitions)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self.state = "rebalancing"
        self.partitions = []

    def data(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "partitions": self.partitions, "received": self.count}


class PracticeWorker(PracticeReader):
    """A member of the practice share group: it works on one record after the other, for a moment each."""

    def run(self) -> None:
        from moldau.client.confluent import without_log
        from moldau.client.confluent_share import ShareConsumer

        consumer = ShareConsumer(
            {
                **self._config(QUEUE),
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": 1,
                **without_log(),
            }
        )
        try:
            consumer.subscribe([PRACTICE])
            self.state = "waiting"
            while not self._stopped.is_set():
                for message in consumer.poll(POLL_SECONDS) or ():
                    if message.error():
                        self._stopped.wait(POLL_SECONDS)
                    else:
                        self._work(consumer, message)
        finally:
            self.state = "stopped"
            consumer.close()

    def _work(self, consumer: Any, message: Any) -> None:
        """A worker that is stopped says nothing of its record: it is released when the worker leaves."""
        from moldau.client.confluent_share import AcknowledgeType

        self.state = "working"
        if self._stopped.wait(WORK_SECONDS):
            return
        said = self._practice.next_answer()
        consumer.acknowledge(message, AcknowledgeType[said.upper()])
        consumer.commit_sync()
        self.count += 1
        self.state = "waiting"
        place = message.partition(), message.offset(), _text(message.key())
        self._practice.note_delivery(Delivery(self.name, *place, message.delivery_count() or 1, said))

    def data(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "received": self.count}
