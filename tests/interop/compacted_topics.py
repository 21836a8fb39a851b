"""Writes tables into compacted topics and reads them back, for tests that wait for a cleaner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from batches import now_ms
from clients import confluent_consumer, confluent_producer
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from harness.patience import PATIENCE_S

STEP_MS = 2_000
EAGER = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000"}
"""Config of a topic in which every older segment is worth cleaning."""


class Read(NamedTuple):
    offset: int
    key: str
    value: str | None


class Writer:
    """Writes each batch into a segment of its own, because each is two seconds younger than the one before."""

    def __init__(self, bootstrap: str, topic: str, first_ms: int | None = None, **config: Any) -> None:
        self._producer = confluent_producer(bootstrap, linger_ms=1000, **config)
        self._topic = topic
        self._timestamp = (now_ms() - 3_000_000 if first_ms is None else first_ms) - STEP_MS

    def write(self, records: Mapping[str, str | None]) -> None:
        self._timestamp += STEP_MS
        failed: list[Any] = []
        for key, value in records.items():
            self._producer.produce(
                self._topic,
                value,
                key,
                partition=0,
                timestamp=self._timestamp,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert self._producer.flush(PATIENCE_S) == 0
        assert not failed, failed


def read_all(bootstrap: str, topic: str, **config: Any) -> list[Read]:
    """Return all records up to the last one, which is never removed while its segment is active."""
    consumer = confluent_consumer(bootstrap, **config)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[Read] = []
        while end and (not found or found[-1].offset < end - 1):
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "a record that was promised did not come"
            assert message.error() is None, message.error()
            value = message.value()
            found.append(Read(message.offset(), message.key().decode(), None if value is None else value.decode()))
        return found
    finally:
        consumer.close()


def table(records: list[Read]) -> dict[str, str | None]:
    """Return the last value of each key, as a consumer from the beginning sees it."""
    return {record.key: record.value for record in records}
