"""confluent_kafka's Producer, as far as the tools use it.

A thread of its own sends what was queued; delivery reports wait until `poll` or `flush` is called, in the thread that
calls. One request at a time goes to a leader, so records of a partition stay in order whatever has to be sent again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from moldau.client.stand_in.admin import connected
from moldau.client.stand_in.batch_sender import BatchSender, Result
from moldau.client.stand_in.values import FAILURES, KafkaError, Message, error_of

QUEUE_RECORDS_MAX: Final = 100_000
SEND_RECORDS_MAX: Final = 10_000

Report = Callable[[KafkaError | None, Message], None]


class Queued(NamedTuple):
    """A record on its way."""

    topic: str
    partition: int
    """-1: the key decides."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int
    report: Report | None

    def message(self, partition: int, offset: int | None, error: KafkaError | None = None) -> Message:
        return Message(self.topic, partition, offset, self.key, self.value, self.headers, (1, self.timestamp_ms), error)


class Producer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._on_delivery: Report | None = config.get("on_delivery")
        self._on_error: Callable[[KafkaError], None] | None = config.get("error_cb")
        self._linger_seconds = float(config.get("linger.ms", 5)) / 1000
        self._queue_max = int(config.get("queue.buffering.max.messages", QUEUE_RECORDS_MAX))
        self._sender = BatchSender(connected(config), config)
        self._changed = threading.Condition()
        self._queue: deque[Queued] = deque()
        self._unreported = 0
        """Records whose report nobody has been given yet."""
        self._reports: deque[tuple[Report, KafkaError | None, Message]] = deque()
        self._errors: deque[KafkaError] = deque()
        self._hurry = False
        threading.Thread(target=self._run, name="producer", daemon=True).start()

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """BufferError when the queue is full: `poll`, and try again."""
        report = on_delivery or self._on_delivery
        at = timestamp or time.time_ns() // 1_000_000
        with self._changed:
            if self._unreported >= self._queue_max:
                raise BufferError("the queue of records to send is full")
            self._queue.append(Queued(topic, partition, key, value, headers or (), at, report))
            self._unreported += 1
            if len(self._queue) in (1, SEND_RECORDS_MAX):
                self._changed.notify_all()

    def poll(self, timeout: float = 0) -> int:
        """Calls the reports that wait, or waits for the first; gives how many."""
        with self._changed:
            if not self._reports and not self._errors and timeout:
                self._changed.wait_for(lambda: bool(self._reports or self._errors), timeout)
        return self._call_back()

    def flush(self, timeout: float = -1) -> int:
        """Waits until all is sent and reported; gives how many records are not."""
        deadline = None if timeout < 0 else time.monotonic() + timeout
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
        while True:
            self._call_back()
            with self._changed:
                rest = None if deadline is None else deadline - time.monotonic()
                if not self._unreported or (rest is not None and rest <= 0):
                    self._hurry = False
                    return self._unreported
                self._changed.wait_for(lambda: bool(self._reports or self._errors) or not self._unreported, rest)

    def __len__(self) -> int:
        return self._unreported

    def _call_back(self) -> int:
        called = 0
        while True:
            with self._changed:
                error = self._errors.popleft() if self._errors else None
                waiting = self._reports.popleft() if error is None and self._reports else None
                if waiting is not None:
                    self._unreported -= 1
            if error is not None:
                if self._on_error is not None:
                    self._on_error(error)
            elif waiting is not None:
                report, failed, message = waiting
                report(failed, message)
            else:
                return called
            called += 1

    # --- the thread that sends --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._queue))
                if not self._hurry:
                    self._changed.wait_for(
                        lambda: self._hurry or len(self._queue) >= SEND_RECORDS_MAX, self._linger_seconds
                    )
                some = [self._queue.popleft() for _ in range(min(len(self._queue), SEND_RECORDS_MAX))]
            self._report(some, self._sender.send(some, self._tell))

    def _tell(self, error: Exception) -> None:
        """Something is wrong that may pass; whoever polls next hears of it."""
        if isinstance(error, FAILURES):
            with self._changed:
                self._errors.append(error_of(error))
                self._changed.notify_all()

    def _report(self, sent: Sequence[Queued], results: Sequence[Result]) -> None:
        with self._changed:
            for queued, (error, partition, offset) in zip(sent, results, strict=True):
                if queued.report is None:
                    self._unreported -= 1
                else:
                    self._reports.append((queued.report, error, queued.message(partition, offset, error)))
            self._changed.notify_all()
