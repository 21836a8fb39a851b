"""confluent_kafka's Producer, as far as the tools use it.

A thread sends the queued records; `poll` and `flush` call the delivery reports in the caller's thread. A leader gets
one request at a time, so that the records of a partition stay in order when batches are sent again.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from moldau.client.stand_in.batch_sender import BatchSender
from moldau.client.stand_in.outbox import DeliveryCallback, Outbox, QueuedRecord
from moldau.client.stand_in.settings import connect
from moldau.client.stand_in.values import KafkaError, to_kafka_error

QUEUE_RECORDS_MAX: Final = 100_000
QUEUE_KBYTES_MAX: Final = 1 << 20
LINGER_MS: Final = 5


class Producer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        cluster = connect(config)
        self._on_delivery: DeliveryCallback | None = config.get("on_delivery")
        on_error: Callable[[KafkaError], None] = config.get("error_cb") or (lambda error: None)
        self._outbox = Outbox(
            int(config.get("queue.buffering.max.messages", QUEUE_RECORDS_MAX)),
            int(config.get("queue.buffering.max.kbytes", QUEUE_KBYTES_MAX)) << 10,
            float(config.get("linger.ms", LINGER_MS)) / 1000,
        )
        sender = BatchSender(cluster, config)
        threading.Thread(target=_send_all, args=(self._outbox, sender, on_error), name="producer", daemon=True).start()
        # The thread ends with its producer: like librdkafka's, it is never closed.
        weakref.finalize(self, self._outbox.close)

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Queue a record. Raises BufferError when the queue is full: call `poll` and try again."""
        timestamp_ms = timestamp or time.time_ns() // 1_000_000
        self._outbox.put(
            QueuedRecord(topic, partition, key, value, headers or (), timestamp_ms, on_delivery or self._on_delivery)
        )

    def poll(self, timeout: float = 0) -> int:
        """Call the waiting delivery reports, or wait for the first; return their number."""
        return self._outbox.run_callbacks(timeout)

    def flush(self, timeout: float = -1) -> int:
        """Wait until all records are sent and reported; return the number of those that are not."""
        return self._outbox.flush(None if timeout < 0 else timeout)

    def __len__(self) -> int:
        return self._outbox.unreported


def _send_all(outbox: Outbox, sender: BatchSender, on_error: Callable[[KafkaError], None]) -> None:
    def report_error(error: Exception) -> None:
        outbox.add_callback(partial(on_error, to_kafka_error(error)))

    while (records := outbox.take(waits=not sender.is_busy)) or sender.is_busy:
        try:
            outbox.report(sender.send(records, report_error))
        except Exception as error:
            # An internal error: fail the records with it, so that their delivery reports are called.
            outbox.report(sender.fail_all(KafkaError(KafkaError._FAIL, f"{type(error).__name__}: {error}")))
    sender.close()
