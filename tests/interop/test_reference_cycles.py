"""The objects of a request are freed with its response, without the cycle collector. A broker runs it rarely: cycles
would hold the records of hundreds of requests, and collecting them would block all clients.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S

from moldau.testing import broker

pytestmark = pytest.mark.moldau_only
REQUESTS = 60


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with broker() as running:
        create_topic({"bootstrap.servers": running.bootstrap_servers})
        yield running.bootstrap_servers


def create_topic(client: dict[str, str]) -> None:
    admin = AdminClient(client)
    admin.create_topics([NewTopic("t", 1)])["t"].result(PATIENCE_S)


def cyclic_garbage(work: Callable[[], None]) -> Counter[str]:
    """Return the types of the objects that only the cycle collector freed."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        return Counter(type(each).__name__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_produce_requests_leave_no_reference_cycles(address: str) -> None:
    def work() -> None:
        producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
        for _ in range(REQUESTS):
            producer.produce("t", b"value")
            assert producer.flush(PATIENCE_S) == 0

    assert not cyclic_garbage(work)


def test_tls_logins_leave_no_reference_cycles() -> None:
    with broker(secure=True) as running:
        client = running.client_config()
        create_topic(client)

        def work() -> None:
            for _ in range(5):
                producer = Producer({**client, "linger.ms": 0})
                producer.produce("t", b"value")
                assert producer.flush(PATIENCE_S) == 0
                del producer  # closes its connections

        assert not cyclic_garbage(work)


def test_transactions_leave_no_reference_cycles(address: str) -> None:
    def work() -> None:
        producer = Producer({"bootstrap.servers": address, "transactional.id": "mine"})
        producer.init_transactions(30)
        for _ in range(REQUESTS // 3):
            producer.begin_transaction()
            producer.produce("t", b"value")
            producer.commit_transaction(30)

    assert not cyclic_garbage(work)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_members_leave_no_reference_cycles(address: str, protocol: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for _ in range(REQUESTS):
        producer.produce("t", b"value")
    assert producer.flush(PATIENCE_S) == 0

    def work() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": protocol,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.subscribe(["t"])
        for _ in range(REQUESTS):
            found = consumer.poll(PATIENCE_S)
            assert found is not None
            consumer.commit(found, asynchronous=False)
        consumer.poll(0.5)  # without records, fetches wait and are answered late
        consumer.close()

    assert not cyclic_garbage(work)
