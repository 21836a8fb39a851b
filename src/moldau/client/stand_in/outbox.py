"""The queues between a producer and its sender thread: records to send, and delivery reports."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from moldau.client.stand_in.values import KafkaError, Message

SEND_RECORDS_MAX: Final = 10_000
RECORD_BYTES: Final = 20
HEADER_BYTES: Final = 10
"""The largest size of the lengths and deltas of a record and of a header."""


class Result(NamedTuple):
    """The outcome of a record."""

    error: KafkaError | None
    partition: int
    offset: int | None


Report = Callable[[KafkaError | None, Message], None]


class Queued(NamedTuple):
    """A record to be sent."""

    topic: str
    partition: int
    """-1: the key decides."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int
    report: Report | None

    def message(self, result: Result) -> Message:
        timestamp = (1, self.timestamp_ms)
        return Message(
            self.topic, result.partition, result.offset, self.key, self.value, self.headers, timestamp, result.error
        )

    def size_in_bytes(self) -> int:
        """Return the record's size in a batch, or slightly more."""
        headers = sum(HEADER_BYTES + len(name) + len(value or b"") for name, value in self.headers)
        return RECORD_BYTES + len(self.key or b"") + len(self.value or b"") + headers


class Delivered(NamedTuple):
    """A record that was sent, or that failed."""

    record: Queued
    result: Result


class Outbox:
    def __init__(self, records_max: int, bytes_max: int, linger_seconds: float) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._linger_seconds = linger_seconds
        self._changed = threading.Condition()
        self._queue: deque[Queued] = deque()
        self._callbacks: deque[Callable[[], None]] = deque()
        self._in_hurry = False
        self._is_closed = False
        self.unreported = 0
        """Records whose delivery report was not called yet."""
        self._unreported_bytes = 0

    # --- the producer's side ----------------------------------------------------------------------------------------

    def put(self, record: Queued) -> None:
        size = record.size_in_bytes()
        with self._changed:
            if self.unreported >= self._records_max or (
                self.unreported and self._unreported_bytes + size > self._bytes_max
            ):
                raise BufferError("the queue of records to send is full")
            self._queue.append(record)
            self.unreported += 1
            self._unreported_bytes += size
            if len(self._queue) in (1, SEND_RECORDS_MAX):
                self._changed.notify_all()

    def call_back(self, timeout: float) -> int:
        """Call the waiting callbacks, or wait for the first; return their number. If one raises, the others stay
        queued."""
        with self._changed:
            if not self._callbacks and timeout > 0:
                self._changed.wait_for(lambda: bool(self._callbacks), timeout)
            count = len(self._callbacks)
        for i in range(count):
            with self._changed:
                callback = self._callbacks.popleft() if self._callbacks else None
            if callback is None:
                return i
            callback()
        return count

    def drain(self, timeout: float | None) -> int:
        """Wait until everything is sent and reported, or the timeout; return the number of records that are not."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._hurry(True)
        try:
            while True:
                self.call_back(0)
                remaining = None if deadline is None else deadline - time.monotonic()
                with self._changed:
                    if not self.unreported or (remaining is not None and remaining <= 0):
                        return self.unreported
                    self._changed.wait_for(lambda: bool(self._callbacks) or not self.unreported, remaining)
        finally:
            self._hurry(False)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _hurry(self, on: bool) -> None:
        with self._changed:
            self._in_hurry = on
            self._changed.notify_all()

    # --- the sender thread's side -----------------------------------------------------------------------------------

    def take(self, waits: bool) -> list[Queued]:
        """Return the next records to send. With `waits`, an empty list means that the outbox is closed."""
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: bool(self._queue) or self._is_closed)
                self._changed.wait_for(
                    lambda: self._in_hurry or self._is_closed or len(self._queue) >= SEND_RECORDS_MAX,
                    self._linger_seconds,
                )
            return [self._queue.popleft() for _ in range(min(len(self._queue), SEND_RECORDS_MAX))]

    def report(self, delivered: Sequence[Delivered]) -> None:
        with self._changed:
            for each in delivered:
                if each.record.report is None:
                    self._release(each.record)
                else:
                    self._callbacks.append(partial(self._call, each.record.report, each))
            self._changed.notify_all()

    def add_callback(self, callback: Callable[[], None]) -> None:
        with self._changed:
            self._callbacks.append(callback)
            self._changed.notify_all()

    def _call(self, report: Report, delivered: Delivered) -> None:
        with self._changed:
            self._release(delivered.record)
            self._changed.notify_all()
        report(delivered.result.error, delivered.record.message(delivered.result))

    def _release(self, record: Queued) -> None:
        self.unreported -= 1
        self._unreported_bytes -= record.size_in_bytes()
