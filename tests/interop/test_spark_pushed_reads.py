"""Reads with `where` and `fields`, without a JVM: compared with a filter in plain Python, while views are deleted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from harness.order_records import FIELDS, WHERE, Record, random_orders, shown_value
from harness.patience import PATIENCE_S, wait_until
from spark_connector import NOW_MS, CreateTopic, StreamRun, read, rows, source

from moldau.base.errors import ErrorCode, KafkaError
from moldau.spark.columns import source_schema
from moldau.spark.connections import connected
from moldau.spark.pushed.shape import PREFIX, Shape
from moldau.testing import TestBroker, broker, cluster

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")
pytestmark = pytest.mark.moldau_only


def produce(settings: dict[str, Any], topic: str, records: list[Record]) -> None:
    producer = Producer({**settings, "linger.ms": 0, "batch.num.messages": 17, "log_level": 0})
    for each in records:
        producer.produce(topic, each.value, each.key, each.partition, timestamp=each.timestamp, headers=each.headers)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def send(bootstrap: str, topic: str, *values: object) -> None:
    produce({"bootstrap.servers": bootstrap}, topic, [_record(json.dumps(value).encode()) for value in values])


def _record(value: bytes) -> Record:
    return Record(None, value, [], NOW_MS, 0)


Row = tuple[int, int, bytes | None, Any, list[tuple[str, bytes | None]], int]


def table_rows(table: pa.Table) -> list[Row]:
    return sorted(
        (
            row["partition"],
            row["offset"],
            row["key"],
            json.loads(row["value"]),
            [(header["key"], header["value"]) for header in row["headers"]],
            round(row["timestamp"].timestamp() * 1000),
        )
        for row in table.to_pylist()
    )


def expected_rows(records: list[Record], begins: dict[int, int] | None = None) -> list[Row]:
    offsets = [0, 0]
    expected: list[Row] = []
    for record in records:
        offset = offsets[record.partition]
        offsets[record.partition] += 1
        value = shown_value(record)
        if value is not None and offset >= (begins or {}).get(record.partition, 0):
            expected.append((record.partition, offset, record.key, value, record.headers, record.timestamp))
    return sorted(expected, key=lambda row: row[:2])


@contextmanager
def stream(bootstrap: str, **options: str) -> Iterator[StreamRun]:
    with closing(StreamRun(bootstrap, **options)) as run:
        yield run


def delete(admin: AdminClient, name: str) -> None:
    admin.delete_topics([name])[name].result(PATIENCE_S)
    wait_until(lambda: name not in admin.list_topics(timeout=PATIENCE_S).topics, f"{name} deleted")


@pytest.mark.parametrize("seed", range(3))
def test_batch_and_stream_read_what_python_filters(bootstrap: str, create_topic: CreateTopic, seed: int) -> None:
    topic = create_topic(2)
    records = random_orders(random.Random(seed), 800, NOW_MS)
    produce({"bootstrap.servers": bootstrap}, topic, records)
    options = {"subscribe": topic, "where": WHERE, "fields": FIELDS, "includeHeaders": "true"}
    table = read(bootstrap, **options)
    assert table_rows(table) == expected_rows(records)
    assert len(expected_rows(records)) > 50
    assert table["topic"].unique().to_pylist() == [topic]

    with stream(bootstrap, **options, startingOffsets="earliest", maxOffsetsPerTrigger="90") as run:
        batches = list(run.batches())
        assert len(batches) >= 8, "the limit counts offsets of the source"
        assert table_rows(pa.concat_tables(batches)) == expected_rows(records)
        ends = {str(partition): sum(each.partition == partition for each in records) for partition in (0, 1)}
        assert run.at == run.reader.reportLatestOffset() == {topic: ends}, "no lag, under the name of the source"


def test_where_or_fields_alone(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(1)
    send(bootstrap, topic, {"a": 1, "b": 2}, {"a": 2}, {"b": 3})
    assert read(bootstrap, subscribe=topic, where="a >= 1")["value"].to_pylist() == [b'{"a": 1, "b": 2}', b'{"a": 2}']
    assert read(bootstrap, subscribe=topic, fields="a")["value"].to_pylist() == [b'{"a":1}', b'{"a":2}', b'{"a":null}']


def test_offsets_are_those_of_the_source(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(2)
    records = random_orders(random.Random(7), 400, NOW_MS)
    produce({"bootstrap.servers": bootstrap}, topic, records)
    shape = {"where": WHERE, "fields": FIELDS, "includeHeaders": "true"}
    begins = json.dumps({topic: {"0": 33, "1": 101}})
    table = read(bootstrap, **shape, subscribe=topic, startingOffsets=begins)
    assert table_rows(table) == expected_rows(records, {0: 33, 1: 101})
    assigned = read(bootstrap, **shape, assign=json.dumps({topic: [1]}))
    assert table_rows(assigned) == expected_rows(records, {0: 10_000})
    at = read(bootstrap, **shape, subscribe=topic, startingTimestamp=str(NOW_MS + 200))
    assert table_rows(at) == [row for row in expected_rows(records) if row[-1] >= NOW_MS + 200]
    with pytest.raises(ValueError, match=f"startingOffsets lacks {topic}-1"):
        read(bootstrap, **shape, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 33}}))
    with pytest.raises(KafkaError, match=f"There is no partition {topic}-7"):
        read(bootstrap, **shape, assign=json.dumps({topic: [7]}))
    many = read(bootstrap, **shape, subscribe=topic, minPartitions="9")
    assert table_rows(many) == expected_rows(records)


def test_several_topics_and_a_pattern_are_read(
    bootstrap: str, create_topic: CreateTopic, topic: Callable[[], str]
) -> None:
    prefix = topic()
    names = [create_topic(1, name=f"{prefix}-{number}") for number in range(3)]
    for number, name in enumerate(names):
        send(bootstrap, name, *({"a": value + number} for value in range(4)))
    for which in ({"subscribe": ",".join(names)}, {"subscribePattern": f"(moldau.*)?{prefix}-.*"}):
        table = read(bootstrap, **which, where="a > 2")
        assert [(row["topic"], row["offset"]) for row in table.to_pylist()] == [
            (names[0], 3),
            *((names[1], offset) for offset in (2, 3)),
            *((names[2], offset) for offset in (1, 2, 3)),
        ]
    with stream(bootstrap, subscribePattern=f"{prefix}-.*", where="a > 2", startingOffsets="earliest") as run:
        assert run.batch().num_rows == 6
        added = create_topic(1, name=f"{prefix}-later")
        send(bootstrap, added, {"a": 9}, {"a": 0})
        assert run.batch()["topic"].to_pylist() == [added]


def test_an_equal_view_is_used_again(bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> None:
    topic = create_topic(1)
    send(bootstrap, topic, {"a": 1}, {"a": 2})

    def views() -> set[str]:
        return {name for name in admin.list_topics(timeout=PATIENCE_S).topics if topic in name and name != topic}

    source(bootstrap, {"subscribe": topic, "where": "a > 1"}).schema()
    assert views() == set(), "load() only checks whether the view could be created"
    for blanks in ("a > 1", "\n a  > 1 \n"):
        assert read(bootstrap, subscribe=topic, where=blanks).num_rows == 1
    assert views() == {Shape("a > 1").view_name(topic)}
    new = NewTopic(f"mine-{topic}", -1, -1, config={"moldau.view.from": topic, "moldau.view.where": "a > 0"})
    admin.create_topics([new])[new.topic].result(PATIENCE_S)
    assert read(bootstrap, subscribe=topic, where="a > 0").num_rows == 2
    assert views() == {Shape("a > 1").view_name(topic), new.topic}


def test_a_deleted_view_is_recreated(bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> None:
    topic = create_topic(1)
    view = Shape("a > 1").view_name(topic)
    send(bootstrap, topic, {"a": 1}, {"a": 2})
    reader: Any = source(bootstrap, {"subscribe": topic, "where": "a > 1"}).reader(source_schema(False))
    partitions = reader.partitions()
    delete(admin, view)
    assert rows(reader, partitions, reader._schema)["offset"].to_pylist() == [1], "a task recreates the view"
    connected(reader._options).close()
    with stream(bootstrap, subscribe=topic, where="a > 1", startingOffsets="earliest") as run:
        assert run.batch()["offset"].to_pylist() == [1]
        delete(admin, view)
        send(bootstrap, topic, {"a": 3}, {"a": 0})
        found: list[int] = []
        wait_until(lambda: found.extend(run.batch()["offset"].to_pylist()) or found, "the stream recreates the view")
        assert found == [2]


def test_another_view_under_the_same_name_is_not_read(
    bootstrap: str, create_topic: CreateTopic, admin: AdminClient
) -> None:
    topic = create_topic(1)
    view = Shape("a > 1").view_name(topic)
    send(bootstrap, topic, {"a": 1}, {"a": 2})
    with stream(bootstrap, subscribe=topic, where="a > 1", startingOffsets="earliest") as run:
        assert run.batch()["offset"].to_pylist() == [1]
        delete(admin, view)
        other = NewTopic(view, -1, -1, config={"moldau.view.from": topic, "moldau.view.where": "a < 9"})
        admin.create_topics([other])[view].result(PATIENCE_S)
        send(bootstrap, topic, {"a": 0})
        with pytest.raises(KafkaError, match=f"{view} at .* is no view of {topic} with this where and fields"):
            wait_until(lambda: run.batch().num_rows, "a refusal")


def test_a_recreated_source_gets_a_new_view(bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> None:
    topic = create_topic(1)
    send(bootstrap, topic, {"a": 1}, {"a": 2})
    assert read(bootstrap, subscribe=topic, where="a > 1").num_rows == 1
    delete(admin, topic)
    with pytest.raises(KafkaError, match=f"There is no topic {topic} at "):
        read(bootstrap, subscribe=topic, where="a > 1")
    create_topic(1, name=topic)
    send(bootstrap, topic, {"a": 5}, {"a": 0}, {"a": 7})
    assert read(bootstrap, subscribe=topic, where="a > 1")["offset"].to_pylist() == [0, 2]


def test_records_of_aborted_transactions_are_read_uncommitted_only(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{topic}", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    for number, end in enumerate(
        (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)
    ):
        producer.begin_transaction()
        for value in range(3):
            producer.produce(topic, json.dumps({"a": value, "n": number}), partition=0)
        producer.flush(PATIENCE_S)  # an abort would drop what is not sent yet
        end(PATIENCE_S)
    for level, wanted in (("read_committed", [2, 10]), ("read_uncommitted", [2, 6, 10])):
        options = {"subscribe": topic, "where": "a > 1", "kafka.isolation.level": level}
        assert read(bootstrap, **options)["offset"].to_pylist() == wanted


def test_new_partitions_of_the_source_are_read(bootstrap: str, create_topic: CreateTopic, admin: AdminClient) -> None:
    topic = create_topic(1)
    send(bootstrap, topic, {"a": 2})
    with stream(bootstrap, subscribe=topic, where="a > 1", startingOffsets="earliest") as run:
        assert run.batch().num_rows == 1
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(PATIENCE_S)
        produce({"bootstrap.servers": bootstrap}, topic, [_record(b'{"a": 4}')._replace(partition=1)])
        found: list[int] = []
        wait_until(lambda: found.extend(run.batch()["partition"].to_pylist()) or found, "the new partition")
        assert found == [1]


def test_invalid_reads_are_refused_before_a_view_is_created(
    bootstrap: str, create_topic: CreateTopic, admin: AdminClient
) -> None:
    topic = create_topic(1)
    view = f"mine-{topic}"
    new = NewTopic(view, -1, -1, config={"moldau.view.from": topic})
    admin.create_topics([new])[view].result(PATIENCE_S)
    for options, message in (
        ({"where": "a >"}, "^where: a field, a number or a text is missing at the end$"),
        ({"fields": "a b"}, "^fields: "),
        ({"subscribe": view, "where": "a > 1"}, f"{view} cannot be read with where or fields: .*is a view"),
        ({"subscribe": topic + "x", "where": "a > 1"}, f"There is no topic {topic}x at .*; did you mean {topic}"),
    ):
        given = {"subscribe": topic, **options}
        for call in (
            lambda given=given: source(bootstrap, given).schema(),
            lambda given=given: read(bootstrap, **given),
        ):  # type: ignore[misc]
            with pytest.raises(KafkaError, match=message):
                call()
    assert not [name for name in admin.list_topics(timeout=PATIENCE_S).topics if name.startswith(PREFIX + topic)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestBroker]:
    with broker(secure=True) as running:
        admin = AdminClient({**running.client_config(), "log_level": 0})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
        produce(running.client_config(), "orders", [_record(b'{"a": %d}' % number) for number in range(5)])
        yield running


def user_options(kafka: TestBroker, user: str, where: str) -> dict[str, str]:
    properties = {"kafka." + name: value for name, value in kafka.java_properties(user).items()}
    return {**properties, "subscribe": "orders", "where": where}


def test_a_user_who_may_not_create_views_gets_the_administrators_command(kafka: TestBroker) -> None:
    kafka.add_user("ann")
    kafka.allow("ann", "read", topic="orders")
    options = user_options(kafka, "ann", "a > 2")
    view = Shape("a > 2").view_name("orders")
    for call in (lambda: source("", options).schema(), lambda: read("", **options)):
        with pytest.raises(KafkaError, match=f"`moldau view create {view} --from orders --where 'a > 2'`") as denied:
            call()
        assert denied.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    new = NewTopic(view, -1, -1, config={"moldau.view.from": "orders", "moldau.view.where": "a > 2"})
    admin.create_topics([new])[view].result(PATIENCE_S)
    kafka.allow("ann", "read,describe_configs", topic=view)
    assert read("", **options)["offset"].to_pylist() == [3, 4]


def test_reading_a_view_requires_no_right_on_its_source(kafka: TestBroker) -> None:
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    new = NewTopic("for-eve", -1, -1, config={"moldau.view.from": "orders", "moldau.view.where": "a = 1"})
    admin.create_topics([new])["for-eve"].result(PATIENCE_S)
    kafka.add_user("eve")
    kafka.allow("eve", "read,describe_configs", topic="for-eve")
    assert read("", **user_options(kafka, "eve", "a = 1"))["offset"].to_pylist() == [1]
    with pytest.raises(KafkaError, match="An administrator can"):
        read("", **user_options(kafka, "eve", "a = 2"))


def test_a_view_without_the_right_to_read_it_is_an_error(kafka: TestBroker) -> None:
    kafka.add_user("joe")
    kafka.allow("joe", "read", topic="orders")
    kafka.allow("joe", "create,describe,describe_configs", topic=PREFIX, prefix=True)
    view = Shape("a < 3").view_name("orders")
    with pytest.raises(
        KafkaError, match=f"TOPIC_AUTHORIZATION_FAILED; the options `where` and `fields` need READ on: {view}"
    ):
        read("", **user_options(kafka, "joe", "a < 3"))


def test_a_corrupt_message_error_points_to_moldau_view_describe(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(1)
    send(bootstrap, topic, {"a": 1})
    reader: Any = source(bootstrap, {"subscribe": topic, "where": "a = 1"}).reader(source_schema(False))
    (partition,) = reader.partitions()

    def refuse(*_: object) -> Iterator[pa.RecordBatch]:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{topic}-0: CORRUPT_MESSAGE")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moldau.spark.source.fetch", refuse)
        with pytest.raises(KafkaError, match=f"`moldau view describe {PREFIX}{topic}-.*` says what failed"):
            list(reader.read(partition))
    connected(reader._options).close()


def test_the_view_of_a_user_has_the_name_in_made_by(kafka: TestBroker) -> None:
    kafka.add_user("bob")
    kafka.allow("bob", "read", topic="orders")
    kafka.allow("bob", "create,describe_configs,read", topic=PREFIX + "orders-", prefix=True)
    assert read("", **user_options(kafka, "bob", "a < 2"))["offset"].to_pylist() == [0, 1]
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.TOPIC, Shape("a < 2").view_name("orders"))
    configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert configs["moldau.view.made.by"].value == "spark for bob"


def test_a_view_is_read_from_all_nodes_of_a_cluster_as_soon_as_it_is_created() -> None:
    with cluster(3) as nodes:
        admin = AdminClient({**nodes.client_config(), "log_level": 0})
        admin.create_topics([NewTopic("orders", 6, 2)])["orders"].result(PATIENCE_S)
        nodes.wait_for_topic("orders")
        records = random_orders(random.Random(3), 600, NOW_MS, partitions=6)
        produce(nodes.client_config(), "orders", records)
        table = read(nodes.bootstrap_servers, subscribe="orders", where=WHERE, minPartitions="12")
        assert sorted(table["timestamp"].cast(pa.int64()).to_pylist()) == [
            record.timestamp * 1000 for record in records if shown_value(record) is not None
        ]
