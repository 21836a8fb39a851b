"""Topics, partitions, configs, records and the cluster through the admin clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import kafka
import pytest
from batches import now_ms
from clients import CLIENTS, Message, confluent_consumer, confluent_producer
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from harness.patience import PATIENCE_S, wait_until
from kafka.admin import KafkaAdminClient

CreateTopic = Callable[..., str]


@pytest.fixture(scope="module")
def kafka_admin(bootstrap: str) -> Any:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def code_of(future: Any) -> int:
    """Return the error code of a confluent future; 0 if it succeeds."""
    try:
        future.result(PATIENCE_S)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def topic_resource(name: str, **entries: Any) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name, **entries)


def config_of(admin: AdminClient, name: str) -> dict[str, Any]:
    (future,) = admin.describe_configs([topic_resource(name)]).values()
    return dict(future.result(PATIENCE_S))


def alter(admin: AdminClient, name: str, *changes: tuple[str, str | None, AlterConfigOpType]) -> int:
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in changes]
    (future,) = admin.incremental_alter_configs([topic_resource(name, incremental_configs=entries)]).values()
    return code_of(future)


def await_partitions(admin: AdminClient, name: str, count: int) -> None:
    """Wait until the broker shows the partitions: a controller answers before every broker knows."""
    wait_until(
        lambda: len(admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions) == count,
        f"metadata shows {count} partitions of {name}",
    )


def test_created_topics_are_listed_and_deleted_ones_are_not(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    assert len(admin.list_topics(timeout=PATIENCE_S).topics[name].partitions) == 3
    admin.delete_topics([name], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
    wait_until(lambda: name not in admin.list_topics(timeout=PATIENCE_S).topics, f"{name} is not listed")
    assert code_of(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_cannot_be_created_twice(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert code_of(admin.create_topics([NewTopic(name, 1, 1)])[name]) == KafkaError.TOPIC_ALREADY_EXISTS


def test_a_recreated_topic_is_empty(bootstrap: str, admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    CLIENTS["confluent"].produce(bootstrap, name, [Message(b"k", b"old")] * 3)
    admin.delete_topics([name], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
    wait_until(lambda: code_of(admin.create_topics([NewTopic(name, 1, 1)])[name]) == 0, f"{name} is recreated")
    CLIENTS["kafka-python"].produce(bootstrap, name, [Message(b"k", b"new")])
    assert CLIENTS["confluent"].consume(bootstrap, name, 1)[0].value == b"new"


def test_many_topics_in_one_request(admin: AdminClient, topic: Callable[[], str]) -> None:
    names = [topic() for _ in range(5)]
    futures = admin.create_topics([NewTopic(name, n + 1, 1) for n, name in enumerate(names)])
    assert [code_of(futures[name]) for name in names] == [0] * 5
    assert [code_of(future) for future in admin.delete_topics(names).values()] == [0] * 5


def test_defaults_of_a_topic_come_from_the_broker(admin: AdminClient, topic: Callable[[], str]) -> None:
    """-1 partitions and -1 replicas mean the broker's defaults (KIP-464)."""
    name = topic()
    admin.create_topics([NewTopic(name, num_partitions=-1, replication_factor=-1)])[name].result(PATIENCE_S)
    node = admin.describe_cluster().result(PATIENCE_S).nodes[0].id
    (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]).values()
    await_partitions(admin, name, int(future.result(PATIENCE_S)["num.partitions"].value))


def test_a_replication_factor_above_the_broker_count_is_refused(admin: AdminClient, topic: Callable[[], str]) -> None:
    name = topic()
    assert code_of(admin.create_topics([NewTopic(name, 1, 7)])[name]) == KafkaError.INVALID_REPLICATION_FACTOR


def test_validation_creates_nothing(admin: AdminClient, topic: Callable[[], str]) -> None:
    name = topic()
    assert code_of(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name]) == 0
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


def test_partitions_can_be_added_but_not_removed(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    assert code_of(admin.create_partitions([NewPartitions(name, 2)])[name]) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(name, 1)])[name]) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(name, 5)], validate_only=True)[name]) == 0
    assert len(admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions) == 2
    assert code_of(admin.create_partitions([NewPartitions(name, 5)])[name]) == 0
    await_partitions(admin, name, 5)


def test_describe_topics(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    (future,) = admin.describe_topics(TopicCollection([name])).values()
    described = future.result(PATIENCE_S)
    assert (described.name, described.is_internal, len(described.partitions)) == (name, False, 2)
    for partition in described.partitions:
        assert [node.id for node in partition.replicas] == [partition.leader.id] == [node.id for node in partition.isr]
    (missing,) = admin.describe_topics(TopicCollection(["no-such-topic-here"])).values()
    assert code_of(missing) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_cluster(admin: AdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert cluster.cluster_id
    assert cluster.controller.id in {node.id for node in cluster.nodes}
    assert f"{cluster.nodes[0].host}:{cluster.nodes[0].port}" == bootstrap


def test_kafka_python_describes_cluster_and_topics(kafka_admin: Any, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    assert kafka_admin.describe_cluster()["brokers"]
    assert name in kafka_admin.list_topics()
    (described,) = kafka_admin.describe_topics([name])
    assert len(described["partitions"]) == 2


def test_topics_are_created_automatically_for_producers(bootstrap: str, topic: Callable[[], str]) -> None:
    for client in CLIENTS.values():
        name = topic()
        client.produce(bootstrap, name, [Message(b"k", b"v")])
        assert client.consume(bootstrap, name, 1)[0].value == b"v"


def test_a_librdkafka_consumer_creates_no_topic(bootstrap: str, admin: AdminClient, topic: Callable[[], str]) -> None:
    name = topic()
    consumer = confluent_consumer(bootstrap, allow_auto_create_topics=False)
    assert consumer.list_topics(name, timeout=PATIENCE_S).topics[name].error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics


def test_configs_show_defaults_and_overrides(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(config={"retention.ms": "123456", "cleanup.policy": "compact,delete"})
    config = config_of(admin, name)
    assert config["retention.ms"].value == "123456"
    assert config["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not config["retention.ms"].is_default
    assert config["cleanup.policy"].value == "compact,delete"
    assert config["max.message.bytes"].value == "1048588"
    assert config["max.message.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert config["compression.type"].value == "producer"
    assert {"segment.bytes", "min.insync.replicas", "message.timestamp.type", "retention.bytes"} <= config.keys()


def test_set_delete_append_subtract(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(config={"cleanup.policy": "delete"})
    operation = AlterConfigOpType
    assert alter(admin, name, ("cleanup.policy", "compact", operation.APPEND)) == 0
    assert config_of(admin, name)["cleanup.policy"].value == "delete,compact"
    assert alter(admin, name, ("cleanup.policy", "delete", operation.SUBTRACT)) == 0
    assert config_of(admin, name)["cleanup.policy"].value == "compact"
    assert alter(admin, name, ("retention.ms", "1000", operation.SET), ("cleanup.policy", None, operation.DELETE)) == 0
    config = config_of(admin, name)
    assert (config["retention.ms"].value, config["cleanup.policy"].value) == ("1000", "delete")
    assert config["cleanup.policy"].is_default


def test_alter_configs_replaces_the_whole_set(admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic(config={"retention.ms": "1000", "segment.ms": "5000"})
    resource = topic_resource(name, set_config={"retention.ms": "2000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        (future,) = admin.alter_configs([resource]).values()
    assert code_of(future) == 0
    config = config_of(admin, name)
    assert config["retention.ms"].value == "2000"
    assert config["segment.ms"].is_default


@pytest.mark.parametrize(
    ("key", "value"),
    [("retention.ms", "soon"), ("no.such.config", "1"), ("cleanup.policy", "keep"), ("segment.bytes", "1")],
)
def test_wrong_configs_are_refused(admin: AdminClient, create_topic: CreateTopic, key: str, value: str) -> None:
    name = create_topic()
    assert alter(admin, name, (key, value, AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG


def test_broker_configs_are_described(admin: AdminClient) -> None:
    node = admin.describe_cluster().result(PATIENCE_S).nodes[0].id
    (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]).values()
    config = future.result(PATIENCE_S)
    assert config["message.max.bytes"].value == "1048588"
    assert config["log.dirs"].is_read_only
    assert "num.partitions" in config


def test_delete_records_moves_the_beginning(bootstrap: str, admin: AdminClient, create_topic: CreateTopic) -> None:
    name = create_topic()
    CLIENTS["confluent"].produce(bootstrap, name, [Message(None, b"%d" % n) for n in range(10)])
    (future,) = admin.delete_records([TopicPartition(name, 0, 4)]).values()
    assert future.result(PATIENCE_S).low_watermark == 4
    assert CLIENTS["confluent"].consume(bootstrap, name, 6)[0].value == b"4"
    (everything,) = admin.delete_records([TopicPartition(name, 0, -1)]).values()
    assert everything.result(PATIENCE_S).low_watermark == 10
    (beyond,) = admin.delete_records([TopicPartition(name, 0, 11)]).values()
    assert code_of(beyond) == KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("spec", "offset"),
    [("earliest", 2), ("latest", 6), ("max_timestamp", 4), ("for_timestamp", 4)],
)
def test_list_offsets(bootstrap: str, admin: AdminClient, create_topic: CreateTopic, spec: str, offset: int) -> None:
    name, start = create_topic(), now_ms() - 60_000
    stamps = [start, start + 1, start + 2, start + 3, start + 50, start + 40]
    for stamp in stamps:
        CLIENTS["confluent"].produce(bootstrap, name, [Message(None, b"v", (), stamp)])
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 2)]).values()
    deleted.result(PATIENCE_S)
    timestamps = [start + 10] if spec == "for_timestamp" else []
    offset_spec = getattr(OffsetSpec, spec)(*timestamps)
    (future,) = admin.list_offsets({TopicPartition(name, 0): offset_spec}).values()
    assert future.result(PATIENCE_S).offset == offset


def test_log_dirs(bootstrap: str, kafka_admin: Any, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    CLIENTS["confluent"].produce(bootstrap, name, [Message(None, b"x" * 1000)])  # to partition 0
    (broker,) = kafka_admin.describe_log_dirs(topic_partitions={name: [0, 1]})
    (directory,) = broker["log_dirs"]
    assert directory["error_code"] == 0
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    (shown,) = directory["topics"]
    assert shown["name"] == name
    sizes = {partition["partition_index"]: partition["partition_size"] for partition in shown["partitions"]}
    assert sizes[0] > 1000
    assert sizes[1] == 0
    assert not any(partition["offset_lag"] or partition["is_future_key"] for partition in shown["partitions"])


def test_describe_producers(bootstrap: str, kafka_admin: Any, create_topic: CreateTopic) -> None:
    name, before = create_topic(), now_ms()
    producer = confluent_producer(bootstrap, enable_idempotence=True)
    for _ in range(3):
        producer.produce(name, b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    partition = kafka.TopicPartition(name, 0)
    (state,) = kafka_admin.describe_producers([partition])[partition].active_producers
    assert state.producer_id >= 0
    assert (state.producer_epoch, state.last_sequence, state.current_transaction_start_offset) == (0, 2, -1)
    assert before <= state.last_timestamp <= now_ms()


def test_kafka_python_pages_through_partitions(kafka_admin: Any, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    page = kafka_admin.describe_topic_partitions([name], response_partition_limit=2)
    assert [partition["partition_index"] for partition in page["topics"][0]["partitions"]] == [0, 1]
    assert page["next_cursor"] == {"topic_name": name, "partition_index": 2}


def test_kafka_python_describes_a_group_with_its_operations(
    bootstrap: str, kafka_admin: Any, create_topic: CreateTopic
) -> None:
    """kafka-python raises an error if a bit is set that stands for no operation."""
    name, group = create_topic(), f"described-{uuid4().hex}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    consumer.close()
    assert group in str(kafka_admin.describe_groups([group], include_authorized_operations=True))
