"""The workers of examples/queue: two members of a share group, and one of a consumer group, bury the same jobs."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients import poll_messages
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until
from share_members import configure

from moldau.testing import TestBroker

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "queue"))

import group_worker
import queue_worker

pytestmark = pytest.mark.moldau_only
DEAD = "dlq.jobs"
GROUP = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": "3",
    "errors.deadletterqueue.topic.name": DEAD,
    "errors.deadletterqueue.copy.record.enable": "true",
}
"""As in the example's README."""
REJECTED, TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


@pytest.fixture
def address(moldau_broker: TestBroker) -> str:
    """A broker with the topics, the group and the jobs of the README."""
    bootstrap = moldau_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    dead = NewTopic(DEAD, 1, config={"errors.deadletterqueue.group.enable": "true"})
    for created in admin.create_topics([NewTopic("jobs", 1), dead]).values():
        created.result(PATIENCE_S)
    configure(admin, "workers", GROUP)
    producer = Producer({"bootstrap.servers": bootstrap})
    for job in ("a", "b", "busy-2", "busy-9", "broken", "c"):
        producer.produce("jobs", job)
    assert producer.flush(PATIENCE_S) == 0
    return bootstrap


def dead_letters(bootstrap: str) -> dict[str, dict[str, str]]:
    """Return the headers of each dead letter by its value."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    try:
        partition = TopicPartition(DEAD, 0, 0)
        consumer.assign([partition])
        end = consumer.get_watermark_offsets(partition)[1]
        found = {
            message.value().decode(): {name: value.decode() for name, value in message.headers()}
            for message in poll_messages(consumer, end)
        }
        assert len(found) == end, "a dead letter is there twice"
        return found
    finally:
        consumer.close()


def run(worker: Any, bootstrap: str, count: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let workers work until both dead letters are there; return how often each job was tried."""
    tried: Counter[str] = Counter()
    do: Callable[[str, int], None] = worker.do

    def counted(job: str, delivery: int) -> None:
        tried[job] += 1
        do(job, delivery)

    monkeypatch.setattr(worker, "do", counted)
    is_done = threading.Event()
    workers = [
        threading.Thread(target=worker.work, args=(bootstrap, lambda _: not is_done.is_set())) for _ in range(count)
    ]
    for each in workers:
        each.start()
    try:
        wait_until(lambda: len(dead_letters(bootstrap)) == 2, lambda: f"both are buried: {tried}")
    finally:
        is_done.set()
        for each in workers:
            each.join(PATIENCE_S)
    return tried


def test_a_queue_tries_again_and_buries(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = run(queue_worker, address, 2, monkeypatch)
    assert tried == {"a": 1, "b": 1, "c": 1, "busy-2": 2, "busy-9": 3, "broken": 1}
    dead = dead_letters(address)
    assert dead["broken"] == {
        "__dlq.errors.topic": "jobs",
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "4",
        "__dlq.errors.group": "workers",
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": REJECTED,
    }
    assert dead["busy-9"] == dead["broken"] | {
        "__dlq.errors.offset": "3",
        "__dlq.errors.delivery.count": "3",
        "__dlq.errors.message": TOO_OFTEN,
    }


def test_a_consumer_group_does_it_by_hand(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = run(group_worker, address, 1, monkeypatch)
    assert tried == {"a": 1, "b": 1, "c": 1, "busy-2": 2, "busy-9": 3, "broken": 1}
    assert {value: headers["__dlq.errors.message"] for value, headers in dead_letters(address).items()} == {
        "broken": REJECTED,
        "busy-9": TOO_OFTEN,
    }


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("graves", "does not begin with 'dlq.', the broker's errors.deadletterqueue.topic.name.prefix"),
        ("dlq.missing", "there is no topic dlq.missing; create it with errors.deadletterqueue.group.enable=true"),
        ("dlq.forbidden", "the topic dlq.forbidden lacks the config errors.deadletterqueue.group.enable=true"),
        ("__dlq", "begins with __, as internal topics do"),
    ],
)
def test_the_log_says_why_there_are_no_dead_letters(
    address: str, topic: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics([NewTopic("dlq.forbidden", 1)]).values():
        created.result(PATIENCE_S)
    configure(admin, "workers", {"errors.deadletterqueue.topic.name": topic})
    expected = "jobs-0: share group workers has no dead letters for 1 of its offsets 4 to 4: "

    def said() -> bool:
        return any(line.startswith(expected) and line.endswith(reason) for line in caplog.messages)

    is_done = threading.Event()
    worker = threading.Thread(target=queue_worker.work, args=(address, lambda _: not is_done.is_set()))
    worker.start()
    try:
        wait_until(said, lambda: f"the reason is logged: {caplog.messages}")
    finally:
        is_done.set()
        worker.join(PATIENCE_S)
