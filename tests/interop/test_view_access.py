"""ACLs of views: reading a view requires no right on its source, creating one requires the right to read the source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until

from moldau.testing import TestBroker, broker

pytest.importorskip("duckdb")
pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestBroker]:
    with broker(secure=True) as running:
        yield running


def create(admin: AdminClient, name: str, **configs: str) -> None:
    settings = {"moldau.view." + key: value for key, value in configs.items()}
    new = NewTopic(name, num_partitions=-1, replication_factor=-1, config=settings)
    admin.create_topics([new], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)


def client(kafka: TestBroker, user: str | None = None) -> dict[str, object]:
    return {**(kafka.client_config() if user is None else kafka.client_config(user)), "log_level": "0"}


def test_a_user_reads_a_view_of_a_topic_without_a_right_on_the_topic(kafka: TestBroker) -> None:
    admin = AdminClient(client(kafka))
    admin.create_topics([NewTopic("people", 1)])["people"].result(PATIENCE_S)
    producer = Producer(client(kafka))
    producer.produce("people", b'{"name":"Anna","salary":5000,"site":"Prague"}')
    producer.produce("people", b'{"name":"Bob","salary":6000,"site":"Brno"}')
    producer.flush(PATIENCE_S)
    create(admin, "prague", **{"from": "people", "where": "site = 'Prague'", "select": "name"})
    kafka.add_user("ann")
    kafka.allow("ann", "read", topic="prague", group="readers")
    reader = Consumer({**client(kafka, "ann"), "group.id": "readers", "auto.offset.reset": "earliest"})
    reader.subscribe(["prague"])
    message = wait_until(lambda: reader.poll(0.2), "the record of the view")
    assert (message.offset(), message.value()) == (0, b'{"name":"Anna"}')
    reader.unsubscribe()
    reader.subscribe(["people"])
    denied = wait_until(lambda: reader.poll(0.2), "a refusal")
    assert denied.error().name() == "TOPIC_AUTHORIZATION_FAILED"
    reader.close()


def test_creating_a_view_requires_the_right_to_read_its_source(kafka: TestBroker) -> None:
    admin = AdminClient(client(kafka))
    for name in ("secret", "open"):
        admin.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_S)
    kafka.add_user("eve")
    kafka.allow("eve", "create", topic="eve-", prefix=True)
    kafka.allow("eve", "read", topic="open")
    eve = AdminClient(client(kafka, "eve"))
    for source in ("secret", "not-there"):
        with pytest.raises(KafkaException) as refused:
            create(eve, "eve-view", **{"from": source})
        assert refused.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    create(eve, "eve-view", **{"from": "open"})
