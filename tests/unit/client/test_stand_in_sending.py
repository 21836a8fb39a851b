"""The stand-in's producer delivers what it can, reports at once what it cannot, and keeps within its limits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from harness.patience import PATIENCE_S, wait_until
from stand_in_brokers import BOOTSTRAP, FakeBrokers

from moldau.client.stand_in import batch_sender
from moldau.client.stand_in.producer import Producer
from moldau.client.stand_in.values import KafkaError, Message
from moldau.wire.apis import ApiKey

pytestmark = pytest.mark.usefixtures("no_waiting")
NEVER_MS = 10**15
"""`sleep` returns at once here, so only a huge timeout never expires."""


class Writer:
    """A producer, and what it reported for each value."""

    def __init__(self, **config: Any) -> None:
        self.reports: dict[bytes | None, str] = {}
        self.errors: list[KafkaError] = []
        named = {name.replace("_", "."): value for name, value in config.items()}
        self.producer = Producer(
            {"bootstrap.servers": BOOTSTRAP, "error_cb": self.errors.append, "message.timeout.ms": NEVER_MS, **named}
        )

    def write(self, value: bytes, partition: int = -1, topic: str = "t") -> None:
        self.producer.produce(topic, value, partition=partition, on_delivery=self._report)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        self.reports[message.value()] = "delivered" if error is None else error.name()

    def await_reports(self, count: int) -> dict[bytes | None, str]:
        def all_are_in() -> bool:
            self.producer.poll(0)
            return len(self.reports) >= count

        wait_until(all_are_in, lambda: f"{count} reports, where {self.reports} came")
        return self.reports


def test_records_for_a_partition_without_a_leader_do_not_block_others(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: -1, 1: 1}
    writer = Writer()
    writer.write(b"a", 0)
    writer.write(b"b", 1)
    assert writer.await_reports(1) == {b"b": "delivered"}
    writer.write(b"c", 1)
    assert writer.await_reports(2) == {b"b": "delivered", b"c": "delivered"}, "records queued later are delivered too"
    brokers.topics["t"] = {0: 2, 1: 1}
    assert writer.await_reports(3)[b"a"] == "delivered"


def test_a_missing_topic_does_not_block_others(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1}
    writer = Writer()
    writer.write(b"a", topic="missing")
    writer.write(b"b")
    assert list(writer.await_reports(2).items()) == [(b"b", "delivered"), (b"a", "UNKNOWN_TOPIC_OR_PART")]


def test_a_missing_partition_fails_alone_and_at_once(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1, 1: 2}
    writer = Writer()
    writer.write(b"a", 0)
    writer.write(b"b", 2)
    assert writer.await_reports(2) == {b"a": "delivered", b"b": "_UNKNOWN_PARTITION"}


def test_partitions_that_were_added_meanwhile_are_found(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1}
    writer = Writer()
    writer.write(b"a", 0)
    writer.await_reports(1)
    brokers.topics["t"] = {0: 1, 1: 2}
    writer.write(b"b", 1)
    assert writer.await_reports(2) == {b"a": "delivered", b"b": "delivered"}


def test_a_topic_is_created_even_if_the_partition_is_given(brokers: FakeBrokers) -> None:
    brokers.creates["t"] = {0: 1}
    writer = Writer()
    writer.write(b"a", 0)
    assert writer.await_reports(1) == {b"a": "delivered"}


def test_records_wait_for_brokers_that_do_not_answer(brokers: FakeBrokers) -> None:
    """Longer than for a missing topic: each failed connection attempt takes five seconds here."""
    brokers.topics["t"] = {0: 1}
    brokers.dead = {1, 2, 3}
    writer = Writer()
    writer.write(b"a")
    wait_until(lambda: len(brokers.connections) > 9, "more connections")
    writer.producer.poll(0)
    assert writer.reports == {}
    assert {error.name() for error in writer.errors} == {"_ALL_BROKERS_DOWN"}
    brokers.dead = set()
    assert writer.await_reports(1) == {b"a": "delivered"}


def test_a_missing_topic_fails_before_the_delivery_timeout(brokers: FakeBrokers) -> None:
    brokers.metadata_seconds = 8
    writer = Writer()
    writer.write(b"a")
    assert writer.await_reports(1) == {b"a": "UNKNOWN_TOPIC_OR_PART"}


def test_a_record_fails_at_the_delivery_timeout(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: -1}
    brokers.metadata_seconds = 8
    writer = Writer(message_timeout_ms=20_000)
    writer.write(b"a", 0)
    assert writer.await_reports(1) == {b"a": "_MSG_TIMED_OUT"}
    brokers.topics["t"] = {0: 1}
    writer.write(b"b", 0)
    assert writer.await_reports(2)[b"b"] == "delivered"


def test_a_delivery_timeout_of_zero_never_expires_as_in_librdkafka(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: -1}
    writer = Writer(message_timeout_ms=0)
    writer.write(b"a", 0)
    wait_until(lambda: len(brokers.requests(ApiKey.METADATA)) > 3, lambda: "several attempts")
    brokers.topics["t"] = {0: 1}
    assert writer.await_reports(1) == {b"a": "delivered"}


def test_headers_count_in_the_size_of_a_batch(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1}
    writer = Writer(linger_ms=60_000)
    for _ in range(5_000):
        writer.producer.produce("t", b"v" * 100, headers=[("name", b"h" * 150)])
    assert writer.producer.flush(PATIENCE_S) == 0
    sizes = [
        len(each.records)
        for request in brokers.requests(ApiKey.PRODUCE)
        for topic in request.topic_data
        for each in topic.partition_data
    ]
    assert len(sizes) > 1
    assert max(sizes) <= batch_sender.BATCH_BYTES


def test_the_queue_is_bounded_by_bytes(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: -1}
    writer = Writer(queue_buffering_max_kbytes=10)
    writer.write(b"a" * 20_000)
    with pytest.raises(BufferError):
        writer.write(b"b")
    brokers.topics["t"] = {0: 1}
    writer.await_reports(1)
    for number in range(9):
        writer.write(b"%d" % number * 1_000)
    writer.await_reports(10)
    assert Counter(writer.reports.values()) == {"delivered": 10}


def test_a_delivery_report_that_raises_does_not_keep_others_from_being_called(brokers: FakeBrokers) -> None:
    brokers.topics["t"] = {0: 1}
    writer = Writer()

    def interrupted(error: KafkaError | None, message: Message) -> None:
        raise KeyboardInterrupt

    writer.producer.produce("t", b"first", on_delivery=interrupted)
    writer.write(b"second")
    writer.write(b"third")
    with pytest.raises(KeyboardInterrupt):
        writer.producer.flush(PATIENCE_S)
    assert writer.producer.flush(PATIENCE_S) == 0
    assert writer.reports == {b"second": "delivered", b"third": "delivered"}


def test_an_internal_error_fails_the_records_and_not_the_thread(
    brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topics["t"] = {0: 1}
    build = batch_sender.build_batch
    monkeypatch.setattr(batch_sender, "build_batch", None)
    writer = Writer()
    writer.write(b"a")
    assert writer.producer.flush(PATIENCE_S) == 0
    monkeypatch.setattr(batch_sender, "build_batch", build)
    writer.write(b"b")
    assert writer.await_reports(2) == {b"a": "_FAIL", b"b": "delivered"}
