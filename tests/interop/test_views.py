"""Views on one broker, with real clients: they read a view as any topic, at the offsets of its source."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from harness.patience import PATIENCE_S, Patience, wait_until
from kio.schema.errors import ErrorCode
from protocol_requests import fetch, list_offset, metadata
from view_readers import Read, position_at_end, read_by_aiokafka, read_by_confluent, read_by_kafka_python
from wire_client import Wire

pytest.importorskip("duckdb")
pytestmark = pytest.mark.moldau_only
ORDERS = 600
CreateTopic = Callable[..., str]


@pytest.fixture(scope="module")
def orders(bootstrap: str, create_topic: CreateTopic) -> str:
    """600 orders in two partitions, in many small batches."""
    name = create_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 7})
    for number in range(ORDERS):
        value = json.dumps({"id": number, "amount": number % 200, "user": f"user-{number % 9}"}).encode()
        producer.produce(name, value, f"key-{number}".encode(), partition=number % 2, timestamp=1000 + number)
    producer.flush(PATIENCE_S)
    return name


@pytest.fixture
def create_view(admin: AdminClient, topic: Callable[[], str]) -> Callable[..., str]:
    def create(source: str, name: str | None = None, partitions: int = -1, **configs: str) -> str:
        name = name or topic()
        settings = {"moldau.view.from": source} | {
            "moldau.view." + key.replace("_", "."): value for key, value in configs.items()
        }
        new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=settings)
        admin.create_topics([new], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
        wait_until(lambda: name in admin.list_topics(timeout=PATIENCE_S).topics, f"the view {name}")
        return name

    return create


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(KafkaException) as refused:
        call()
    error = refused.value.args[0]
    return error.name(), error.str()


def expected(bootstrap: str, source: str, where: Callable[[dict[str, int]], bool]) -> list[Read]:
    return [each for each in read_by_confluent(bootstrap, source) if where(json.loads(each.value or b""))]


def test_every_client_reads_the_same_records_at_the_offsets_of_the_source(
    bootstrap: str, orders: str, create_view: Callable[..., str]
) -> None:
    view = create_view(orders, where="amount > 195")
    shown = expected(bootstrap, orders, lambda order: order["amount"] > 195)
    assert len(shown) == 12
    assert read_by_confluent(bootstrap, view) == shown
    assert read_by_confluent(bootstrap, view, **{"group.protocol": "consumer"}) == shown
    assert read_by_kafka_python(bootstrap, view, lambda found: len(found) >= 12) == shown
    assert read_by_aiokafka(bootstrap, view, lambda found: len(found) >= 12) == shown


def test_fields_are_selected_renamed_and_masked(bootstrap: str, orders: str, create_view: Callable[..., str]) -> None:
    view = create_view(
        orders, where="id = 5 or id = 8", select="id as number, left(user, 2) as user, null as amount", key="null"
    )
    assert [(each.offset, each.key, each.value) for each in read_by_confluent(bootstrap, view)] == [
        (4, None, b'{"number":8,"user":"us","amount":null}'),
        (2, None, b'{"number":5,"user":"us","amount":null}'),
    ]


def test_a_consumer_advances_over_records_that_are_not_shown(
    bootstrap: str, orders: str, create_view: Callable[..., str]
) -> None:
    view = create_view(orders, where="amount > 1000")
    assert read_by_confluent(bootstrap, view) == []
    position, end = position_at_end(bootstrap, view)
    assert (position, end) == (ORDERS // 2, ORDERS // 2)


def test_a_record_that_one_view_cannot_parse_is_shown_by_another(
    bootstrap: str, create_topic: CreateTopic, create_view: Callable[..., str]
) -> None:
    """The first view parses the values as JSON; its index must not be used for the view that parses CSV."""
    source = create_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(source, b"7,500")
    producer.flush(PATIENCE_S)
    assert read_by_confluent(bootstrap, create_view(source, where="amount > 100")) == []
    view = create_view(source, where="amount > 100", format="csv(id, amount)")
    assert [each.offset for each in read_by_confluent(bootstrap, view)] == [0]


def test_new_records_are_shown_and_offsets_of_the_source_can_be_committed(
    bootstrap: str, create_topic: CreateTopic, create_view: Callable[..., str]
) -> None:
    source = create_topic(1)
    view = create_view(source, where="a > 1")
    config = {"bootstrap.servers": bootstrap, "group.id": f"g-{view}", "auto.offset.reset": "earliest"}
    consumer = Consumer(config | {"enable.auto.commit": False})
    consumer.subscribe([view])
    producer = Producer({"bootstrap.servers": bootstrap})
    for round_ in range(3):
        for number in range(3):
            producer.produce(source, json.dumps({"a": number, "round": round_}).encode())
        producer.flush(PATIENCE_S)
        message = wait_until(lambda: consumer.poll(0.1), "the next record")
        assert not message.error()
        assert (message.offset(), json.loads(message.value())) == (3 * round_ + 2, {"a": 2, "round": round_})
    # Offset 4 is not shown: a consumer that begins there gets the next one that is.
    consumer.commit(offsets=[TopicPartition(view, 0, 4)], asynchronous=False)
    consumer.close()
    again = Consumer(config)
    again.subscribe([view])
    assert wait_until(lambda: again.poll(0.1), "a record from the committed offset on").offset() == 5
    again.close()


def test_a_view_shows_a_transaction_only_when_it_is_committed(
    bootstrap: str, create_topic: CreateTopic, create_view: Callable[..., str]
) -> None:
    source = create_topic(1)
    view = create_view(source, where="a = 1")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{source}"})
    producer.init_transactions(PATIENCE_S)
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(source, json.dumps({"a": number, "is": outcome}).encode())
        if outcome == "commit":
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
    committed = read_by_confluent(bootstrap, view, **{"isolation.level": "read_committed"})
    assert [(each.offset, json.loads(each.value or b"")["is"]) for each in committed] == [(1, "commit"), (9, "commit")]
    every = read_by_confluent(bootstrap, view, **{"isolation.level": "read_uncommitted", "check.crcs": True})
    assert [each.offset for each in every] == [1, 5, 9]


def test_writes_to_and_changes_of_a_view_are_refused(
    bootstrap: str, admin: AdminClient, orders: str, create_view: Callable[..., str]
) -> None:
    view = create_view(orders, where="amount > 195")
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(view, b"{}", on_delivery=lambda error, _: failed.append(error.name()))
    producer.flush(PATIENCE_S)
    assert failed == ["POLICY_VIOLATION"]
    grown = admin.create_partitions([NewPartitions(view, 5)])[view]
    assert refusal(lambda: grown.result(PATIENCE_S)) == (
        "POLICY_VIOLATION",
        f"'{view}' is a view; its partitions are those of '{orders}'.",
    )
    deleted = admin.delete_records([TopicPartition(view, 0, 5)])
    assert refusal(lambda: next(iter(deleted.values())).result(PATIENCE_S))[0] == "POLICY_VIOLATION"
    change = ConfigEntry("moldau.view.where", "amount > 5", incremental_operation=AlterConfigOpType.SET)
    for name in (view, orders):
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change])
        changed = admin.incremental_alter_configs([resource])
        assert refusal(lambda: next(iter(changed.values())).result(PATIENCE_S))[0] == "INVALID_CONFIG"  # noqa: B023


def test_invalid_views_are_refused(orders: str, create_view: Callable[..., str]) -> None:
    view = create_view(orders)
    for source, configs, part in (
        (orders, {"where": "amount >"}, "moldau.view.where: a field, a number or a text is missing at the end."),
        (orders, {"select": "amount + 1"}, "AS and a name are missing at the end"),
        (view, {}, f"'{view}' is a view; a view shows a stored topic."),
        ("nothing", {}, "there is no topic 'nothing'."),
        (orders, {"source_id": "x"}, "is set by the controller alone."),
        (orders, {"partitions": 5}, "A view has the partitions of its source"),
    ):
        name, text = refusal(lambda: create_view(source, **configs))  # noqa: B023
        assert part in text, (name, text)


def test_a_view_of_a_deleted_source_is_unknown_and_does_not_show_the_recreated_topic(
    bootstrap: str, wire: Wire, admin: AdminClient, create_topic: CreateTopic, create_view: Callable[..., str]
) -> None:
    source = create_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(source, b'{"a": 1}')
    producer.flush(PATIENCE_S)
    view = create_view(source, where="a = 1")
    assert len(read_by_confluent(bootstrap, view)) == 1
    admin.delete_topics([source])[source].result(PATIENCE_S)
    wait_until(lambda: not admin.list_topics(timeout=PATIENCE_S).topics[view].partitions, "the view without partitions")
    (described,) = metadata(wire, [{"topic_id": None, "name": view}], auto_create=True).topics
    assert (described.error_code, described.partitions) == (ErrorCode.unknown_topic_or_partition, ())
    for answer in (list_offset(wire, view, -2), list_offset(wire, view, -1), fetch(wire, view, 0)):
        assert answer.error_code == ErrorCode.unknown_topic_or_partition
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": view, "allow.auto.create.topics": True})
    consumer.subscribe([view])
    patience = Patience("the consumer is told that the topic is unknown")
    while (told := consumer.poll(0.2)) is None:
        patience.check("nothing")
    assert told.error().name() == "UNKNOWN_TOPIC_OR_PART"
    consumer.close()
    create_topic(1, name=source)
    producer.produce(source, b'{"a": 1}')
    producer.flush(PATIENCE_S)
    assert not admin.list_topics(timeout=PATIENCE_S).topics[view].partitions
    admin.delete_topics([view])[view].result(PATIENCE_S)
    again = create_view(source, view, where="a = 1")
    assert len(read_by_confluent(bootstrap, again, **{"group.id": "another"})) == 1


def test_a_view_gets_the_new_partitions_of_its_source(
    bootstrap: str, admin: AdminClient, create_topic: CreateTopic, create_view: Callable[..., str]
) -> None:
    source = create_topic(1)
    view = create_view(source)
    admin.create_partitions([NewPartitions(source, 3)])[source].result(PATIENCE_S)
    wait_until(lambda: len(admin.list_topics(timeout=PATIENCE_S).topics[view].partitions) == 3, "three partitions")
    producer = Producer({"bootstrap.servers": bootstrap})
    wait_until(lambda: len(producer.list_topics(source).topics[source].partitions) == 3, "the producer's metadata")
    producer.produce(source, b"any value at all", partition=2)
    producer.flush(PATIENCE_S)
    assert [(each.partition, each.value) for each in read_by_confluent(bootstrap, view)] == [(2, b"any value at all")]
