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
    """What became of a record: its error, or its partition and offset."""

    error: KafkaError | None
    partition: int
    offset: int | None


DeliveryCallback = Callable[[KafkaError | None, Message], None]


class QueuedRecord(NamedTuple):
    """A record to be sent."""

    topic: str
    partition: int
    """-1: the key decides."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int
    on_delivery: DeliveryCallback | None

    def message(self, result: Result) -> Message:
        timestamp = (1, self.timestamp_ms)
        return Message(
            self.topic, result.partition, result.offset, self.key, self.value, self.headers, timestamp, result.error
        )

    def size_in_bytes(self) -> int:
        """Return the record's size in a batch, or slightly more."""
        headers = sum(HEADER_BYTES + len(name) + len(value or b"") for name, value in self.headers)
        return RECORD_BYTES + len(self.key or b"") + len(self.value or b"") + headers


class FinishedRecord(NamedTuple):
    """A record that a broker accepted, or that failed."""

    record: QueuedRecord
    result: Result


class Outbox:
    def __init__(self, records_max: int, bytes_max: int, linger_seconds: float) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._linger_seconds = linger_seconds
        self._changed = threading.Condition()
        self._queue: deque[QueuedRecord] = deque()
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_flushing = False
        self._is_closed = False
        self.unreported = 0
        """Records whose delivery report was not called yet."""
        self._unreported_bytes = 0

    # --- the producer's side ----------------------------------------------------------------------------------------

    def put(self, record: QueuedRecord) -> None:
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

    def run_callbacks(self, timeout: float) -> int:
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

    def flush(self, timeout: float | None) -> int:
        """Wait until everything is sent and reported, or the timeout; return the number of records that are not."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._set_flushing(True)
        try:
            while True:
                self.run_callbacks(0)
                remaining = None if deadline is None else deadline - time.monotonic()
                with self._changed:
                    if not self.unreported or (remaining is not None and remaining <= 0):
                        return self.unreported
                    self._changed.wait_for(lambda: bool(self._callbacks) or not self.unreported, remaining)
        finally:
            self._set_flushing(False)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _set_flushing(self, on: bool) -> None:
        with self._changed:
            self._is_flushing = on
            self._changed.notify_all()

    # --- the sender thread's side -----------------------------------------------------------------------------------

    def take(self, waits: bool) -> list[QueuedRecord]:
        """Return the next records to send. With `waits`, an empty list means that the outbox is closed."""
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: bool(self._queue) or self._is_closed)
                self._changed.wait_for(
                    lambda: self._is_flushing or self._is_closed or len(self._queue) >= SEND_RECORDS_MAX,
                    self._linger_seconds,
                )
            return [self._queue.popleft() for _ in range(min(len(self._queue), SEND_RECORDS_MAX))]

    def report(self, finished: Sequence[FinishedRecord]) -> None:
        with self._changed:
            for each in finished:
                if each.record.on_delivery is None:
                    self._release(each.record)
                else:
                    self._callbacks.append(partial(self._call, each.record.on_delivery, each))
            self._changed.notify_all()

    def add_callback(self, callback: Callable[[], None]) -> None:
        with self._changed:
            self._callbacks.append(callback)
            self._changed.notify_all()

    def _call(self, on_delivery: DeliveryCallback, finished: FinishedRecord) -> None:
        with self._changed:
            self._release(finished.record)
            self._changed.notify_all()
        on_delivery(finished.result.error, finished.record.message(finished.result))

    def _release(self, record: QueuedRecord) -> None:
        self.unreported -= 1
        self._unreported_bytes -= record.size_in_bytes()
