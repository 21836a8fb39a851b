"""Views of invalid and huge values, and many views of one topic: clients of other topics are served meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from harness.depth import DEPTH
from harness.patience import PATIENCE_S, Patience, wait_until
from view_broker import ViewBroker
from view_readers import read_by_confluent

pytest.importorskip("duckdb")
pytestmark = pytest.mark.moldau_only
VIEWS = 100 if DEPTH > 1 else 20
HUGE_BYTES = (50 if DEPTH > 1 else 6) << 20
ROUND_TRIPS = 10


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewBroker]:
    with ViewBroker(tmp_path_factory.mktemp("views"), group_initial_rebalance_delay_ms=0) as running:
        yield running


class Bystander(threading.Thread):
    """Writes a record to a topic of its own and reads it back, again and again."""

    def __init__(self, broker: ViewBroker, topic: str) -> None:
        super().__init__(name=f"bystander of {topic}", daemon=True)
        broker.create(topic)
        self._servers = broker.bootstrap
        self._topic = topic
        self.round_trips = 0
        self.wrong: list[str] = []
        self.is_over = False

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": self._topic})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not self.is_over:
            producer.produce(self._topic, str(self.round_trips).encode(), on_delivery=self._delivered)
            producer.flush(PATIENCE_S)
            message = consumer.poll(PATIENCE_S)
            if message is None or message.error() or message.value() != str(self.round_trips).encode():
                self.wrong.append(f"{self.round_trips}: {message and (message.error() or message.value())}")
                break
            self.round_trips += 1
        consumer.close()

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.wrong.append(str(error))


@contextmanager
def bystander_of(broker: ViewBroker, topic: str) -> Iterator[Bystander]:
    bystander = Bystander(broker, topic)
    bystander.start()
    try:
        yield bystander
    finally:
        bystander.is_over = True
        bystander.join(3 * PATIENCE_S)  # it may be in a flush and a poll, each of PATIENCE_S
    assert not bystander.is_alive()
    assert not bystander.wrong
    assert bystander.round_trips


def write(broker: ViewBroker, topic: str, *values: bytes, **config: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **config})
    failed: list[str] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error.str()))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def test_clients_of_other_topics_are_served_beside_many_views(broker: ViewBroker) -> None:
    """Records are written and all views read until a client of another topic has made its round trips."""
    broker.create("hot")
    names = [f"hot-{number}" for number in range(VIEWS)]
    for number, name in enumerate(names):
        broker.create_view(name, "hot", where=f"a % {VIEWS} = {number}", select="a")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "hot readers"})
    consumer.assign([TopicPartition(name, 0, 0) for name in names])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    found: dict[str, list[int]] = {name: [] for name in names}
    written = 0
    with bystander_of(broker, "beside-hot") as bystander:
        patience = Patience(lambda: f"the views: {written} written, {sum(map(len, found.values()))} shown")
        while sum(map(len, found.values())) < written or bystander.round_trips < ROUND_TRIPS or not written:
            if bystander.round_trips < ROUND_TRIPS:
                for _ in range(2 * VIEWS):
                    producer.produce("hot", json.dumps({"a": written}).encode())
                    written += 1
                producer.flush(PATIENCE_S)
            for message in consumer.consume(500, timeout=0.2):
                assert not message.error(), message.error()
                found[message.topic()].append(json.loads(message.value())["a"])
                assert message.offset() == found[message.topic()][-1]
            patience.check((written, sum(map(len, found.values())), bystander.round_trips))
    consumer.close()
    assert found == {name: list(range(number, written, VIEWS)) for number, name in enumerate(names)}


def test_invalid_and_huge_values_are_read_or_skipped(broker: ViewBroker) -> None:
    limit = 64 << 20
    broker.create("odd", max_message_bytes=str(limit))
    broker.create_view("odd-shown", "odd", where="a = 1")
    broker.create_view("odd-passed", "odd", where="a = 2", on_error="pass")
    broker.create_view("odd-selected", "odd", where="a = 1", select="a")
    small = [
        b'{"a": 1}',
        b"no JSON",
        b'{"a": 1, "deep": ' + b"[" * 1000 + b"]" * 1000 + b"}",
        b"[" * 1000,
        b"\xff\xfe\x00",
        b"",
        b'{"a": 1, "a": 2',
        b'"a"',
        b'{"a": 1}',
    ]
    huge = b'{"a": 1, "pad": "' + b"x" * HUGE_BYTES + b'"}'
    opened = b"[" * HUGE_BYTES
    config = {"message.max.bytes": limit}
    fetching = {"fetch.message.max.bytes": limit, "receive.message.max.bytes": 2 * limit}
    with bystander_of(broker, "beside-odd") as bystander:
        write(broker, "odd", *small)
        write(broker, "odd", huge, **config)
        write(broker, "odd", opened, **config)
        write(broker, "odd", b'{"a": 1}')
        before = bystander.round_trips
        shown = read_by_confluent(broker.bootstrap, "odd-shown", **fetching)
        assert [each.offset for each in shown] == [0, 2, 8, 9, 11]
        assert shown[3].value == huge
        selected = read_by_confluent(broker.bootstrap, "odd-selected")
        assert [(each.offset, each.value) for each in selected] == [(at, b'{"a":1}') for at in (0, 2, 8, 9, 11)]
        passed = read_by_confluent(broker.bootstrap, "odd-passed", **fetching)
        assert [each.offset for each in passed] == [1, 3, 4, 5, 6, 10]
        wait_until(lambda: bystander.round_trips > before or bystander.wrong, "the client of the other topic continues")


def is_assigned(consumer: Consumer) -> bool:
    """Poll, as a member must to get its assignment. Without a committed offset an error may come with it."""
    consumer.poll(0.05)
    return bool(consumer.assignment())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_resumes_at_a_committed_offset_that_is_not_shown(broker: ViewBroker, protocol: str) -> None:
    source, view = f"resumed-{protocol}", f"resumed-view-{protocol}"
    broker.create(source)
    broker.create_view(view, source, where="a > 5")
    write(broker, source, *(json.dumps({"a": number}).encode() for number in [9, 1, 2, 9, 3, 4]))
    config = {"bootstrap.servers": broker.bootstrap, "group.id": view, "group.protocol": protocol}
    for committed, expected in [(1, 3), (2, 3), (3, 3), (4, 6), (6, 6)]:
        consumer = Consumer({**config, "auto.offset.reset": "error", "enable.auto.commit": False})
        consumer.subscribe([view])
        wait_until(lambda: is_assigned(consumer), "an assignment")  # noqa: B023
        consumer.commit(offsets=[TopicPartition(view, 0, committed)], asynchronous=False)
        consumer.close()
        if committed == 4:  # nothing behind it is shown yet
            write(broker, source, b'{"a": 7}')
        consumer = Consumer({**config, "auto.offset.reset": "error", "enable.auto.commit": False})
        consumer.subscribe([view])
        message = wait_until(lambda: consumer.poll(0.1), f"a record from {committed} on")  # noqa: B023
        assert not message.error(), message.error()
        assert message.offset() == expected
        consumer.close()


def test_a_division_by_zero_is_null(broker: ViewBroker) -> None:
    broker.create("divided")
    broker.create_view("divided-where", "divided", where="10 / a > 1 or 10 % a = 3")
    broker.create_view("divided-select", "divided", select="10 / a as q, 10 % a as r")
    write(broker, "divided", *(json.dumps({"a": number}).encode() for number in [0, 5, 0.0, 20, 7]))
    assert [each.offset for each in read_by_confluent(broker.bootstrap, "divided-where")] == [1, 4]
    selected = [json.loads(each.value or b"") for each in read_by_confluent(broker.bootstrap, "divided-select")]
    nothing = {"q": None, "r": None}
    assert selected == [nothing, {"q": 2, "r": 0}, nothing, {"q": 0.5, "r": 10}, {"q": pytest.approx(10 / 7), "r": 3}]
