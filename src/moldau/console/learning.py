"""What the page Learn runs in the console's process: consumers that read the practice topic as one group, each in a
thread, and what was seen of a compaction. `endpoints/learn` starts and stops them; all of it ends with the user's
access. Nothing outside of topics that begin with `moldau-learn` is touched."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from moldau.client.properties import for_librdkafka

PRACTICE: Final = "moldau-learn"
CONSUMERS_MAX: Final = 6
READ_RECENTLY: Final = 200
POLL_SECONDS: Final = 0.2


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


@dataclass
class Practice:
    """What one user practises."""

    bootstrap: str
    properties: Mapping[str, str] = field(repr=False)
    consumers: list[PracticeConsumer] = field(default_factory=list)
    received: deque[Consumption] = field(default_factory=lambda: deque(maxlen=READ_RECENTLY))
    compaction: dict[str, Any] | None = None
    """The records before and after, as the page gets them; another object for each compaction that is begun."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False
    _number: int = 0
    _names: int = 0

    def set_consumers(self, count: int) -> None:
        """Start or stop consumers until there are this many; the newest stop first. None start after `close`: the user
        has logged out meanwhile."""
        with self._lock:
            if self._closed:
                return
            leaving = self.consumers[count:]
            del self.consumers[count:]
            while len(self.consumers) < count:
                self._names += 1
                consumer = PracticeConsumer(f"consumer-{self._names}", self)
                self.consumers.append(consumer)
                consumer.start()
        for consumer in leaving:
            consumer.stop()
        for consumer in leaving:
            consumer.join(10.0)

    def note(self, consumer: str, partition: int, offset: int, key: bytes | None) -> None:
        with self._lock:
            self._number += 1
            text = None if key is None else key.decode(errors="replace")[:100]
            self.received.append(Consumption(self._number, partition, offset, text, consumer))

    def received_after(self, number: int) -> list[Consumption]:
        with self._lock:
            return [each for each in self.received if each.number > number]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            leaving, self.consumers = self.consumers, []
        for consumer in leaving:
            consumer.stop()


class PracticeConsumer(threading.Thread):
    """A consumer of the practice group in a thread."""

    def __init__(self, name: str, practice: Practice) -> None:
        super().__init__(name=name, daemon=True)
        self._practice = practice
        self._stopped = threading.Event()
        self.state = "starting"
        self.partitions: list[int] = []
        self.count = 0

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        from moldau.client.confluent import Consumer, without_log

        consumer = Consumer(
            {
                **for_librdkafka(dict(self._practice.properties)),
                "bootstrap.servers": self._practice.bootstrap,
                "group.id": PRACTICE,
                "client.id": self.name,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "auto.commit.interval.ms": 1000,
                "topic.metadata.refresh.interval.ms": 2000,
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
