"""Ordinary requests of all APIs, as plain values, for a comparison of the answers of two brokers.

They assume the topic `orders`, with one record and the group `billing`, which has committed an offset. Requests that
create something name it after the version, so that each version creates its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from moldau.wire.apis import ApiKey, request_class
from moldau.wire.records import NEXT_OFFSET, Record, build_batch
from moldau.wire.schema import Message, fields_of

TOPIC, UNKNOWN, GROUP = "orders", "nowhere", "billing"
UNKNOWN_ID = b"\x01" * 16
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ANY, READ, ALLOW, LITERAL = 1, 3, 3, 3
Values = Mapping[str, Any]


class Context(NamedTuple):
    """What a request may need of its broker."""

    topic_id: bytes
    version: int
    now_ms: int

    def records(self) -> bytes:
        return bytes(build_batch([Record(NEXT_OFFSET, self.now_ms, b"k", b"v")]))


class Ordinary(NamedTuple):
    name: str
    api: ApiKey
    values: Callable[[Context], Values]
    versions: tuple[int, int] = (0, 99)


def build(cls: type[Message], values: Values) -> Message:
    """Return a message from plain values: dicts for structs, and lists of them."""
    made: dict[str, Any] = {}
    structs = {field.name: field.struct for field in fields_of(cls)}
    for name, value in values.items():
        struct = structs[name]
        if struct is None or value is None:
            made[name] = value
        elif isinstance(value, list):
            made[name] = [build(struct, each) for each in value]
        else:
            made[name] = build(struct, value)
    return cls(**made)


def ordinary_request(each: Ordinary, context: Context) -> Message:
    return build(request_class(each.api), each.values(context))


def always(**values: Any) -> Callable[[Context], Values]:
    return lambda _: values


def _topics(partition: Values, key: str = "name", partitions: str = "partitions") -> Callable[[Context], list[Values]]:
    def made(context: Context) -> list[Values]:
        return [{key: name, partitions: [partition]} for name in (TOPIC, UNKNOWN)]

    return made


def all_requests() -> Iterator[Ordinary]:
    yield from _about_topics()
    yield from _about_configs()
    yield from _about_records()
    yield from _about_groups()
    yield from _about_transactions()
    yield from _about_the_cluster()


def _about_topics() -> Iterator[Ordinary]:
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    yield Ordinary(
        "some topics",
        ApiKey.METADATA,
        always(topics=[{"name": TOPIC}, {"name": UNKNOWN}], allow_auto_topic_creation=False, **operations),
    )
    yield Ordinary(
        "without operations",
        ApiKey.METADATA,
        always(topics=[{"name": TOPIC}, {"name": "a b"}], allow_auto_topic_creation=False),
        (4, 99),
    )
    yield Ordinary("an unknown id", ApiKey.METADATA, always(topics=[{"topic_id": UNKNOWN_ID, "name": None}]), (12, 99))
    yield Ordinary(
        "some topics",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        always(topics=[{"name": TOPIC}, {"name": UNKNOWN}], response_partition_limit=100),
    )
    yield Ordinary(
        "one with configs, one that exists, one with a wrong name, one with wrong configs",
        ApiKey.CREATE_TOPICS,
        lambda context: {
            "topics": [
                {
                    "name": f"new-{context.version}",
                    "num_partitions": 2,
                    "replication_factor": 1,
                    "configs": [{"name": "retention.ms", "value": "1000"}],
                },
                {"name": TOPIC, "num_partitions": 1, "replication_factor": 1},
                {"name": "a b", "num_partitions": 1, "replication_factor": 1},
                {
                    "name": "wrong",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": [{"name": "x", "value": "y"}],
                },
                {"name": "wide", "num_partitions": 1, "replication_factor": 3},
                {"name": "none", "num_partitions": 0, "replication_factor": 1},
            ],
            "timeout_ms": 10_000,
        },
    )
    yield Ordinary(
        "only to validate",
        ApiKey.CREATE_TOPICS,
        always(
            topics=[{"name": "validated", "num_partitions": -1, "replication_factor": -1}],
            validate_only=True,
            timeout_ms=10_000,
        ),
        (4, 99),
    )
    yield Ordinary(
        "more, as many, fewer, of an unknown topic",
        ApiKey.CREATE_PARTITIONS,
        lambda context: {
            "topics": [
                {"name": f"new-{context.version + 2}", "count": 3, "assignments": None},
                {"name": TOPIC, "count": 1, "assignments": None},
                {"name": UNKNOWN, "count": 3, "assignments": None},
            ],
            "timeout_ms": 10_000,
        },
    )
    yield Ordinary(
        "one that is there, one that is not",
        ApiKey.DELETE_TOPICS,
        lambda context: {
            "topic_names": [f"new-{context.version + 1}", UNKNOWN],
            "topics": [
                {"name": f"new-{context.version + 1}"},
                {"name": UNKNOWN},
                {"name": None, "topic_id": UNKNOWN_ID},
            ],
            "timeout_ms": 10_000,
        },
    )
    yield Ordinary(
        "of all kinds",
        ApiKey.ELECT_LEADERS,
        always(
            election_type=0,
            topic_partitions=[{"topic": TOPIC, "partitions": [0]}, {"topic": UNKNOWN, "partitions": [0]}],
            timeout_ms=10_000,
        ),
    )
    yield Ordinary("none", ApiKey.LIST_PARTITION_REASSIGNMENTS, always(topics=None, timeout_ms=10_000))
    yield Ordinary(
        "to where it is, and of an unknown topic",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        always(
            topics=[
                {"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]},
                {"name": UNKNOWN, "partitions": [{"partition_index": 0, "replicas": None}]},
            ],
            timeout_ms=10_000,
        ),
    )


def _about_configs() -> Iterator[Ordinary]:
    yield Ordinary(
        "a topic, some of its keys, an unknown topic, a broker",
        ApiKey.DESCRIBE_CONFIGS,
        always(
            resources=[
                {"resource_type": TOPIC_RESOURCE, "resource_name": TOPIC, "configuration_keys": None},
                {
                    "resource_type": TOPIC_RESOURCE,
                    "resource_name": TOPIC,
                    "configuration_keys": ["cleanup.policy", "nothing"],
                },
                {"resource_type": TOPIC_RESOURCE, "resource_name": UNKNOWN, "configuration_keys": None},
                {"resource_type": TOPIC_RESOURCE, "resource_name": "a b", "configuration_keys": None},
                {
                    "resource_type": BROKER_RESOURCE,
                    "resource_name": "1",
                    "configuration_keys": ["num.partitions", "log.retention.hours", "ssl.key.password"],
                },
                {"resource_type": BROKER_RESOURCE, "resource_name": "77", "configuration_keys": ["num.partitions"]},
                {"resource_type": BROKER_RESOURCE, "resource_name": "", "configuration_keys": ["num.partitions"]},
            ],
            include_synonyms=True,
            include_documentation=True,
        ),
    )
    yield Ordinary(
        "of an unknown kind beside a topic",
        ApiKey.DESCRIBE_CONFIGS,
        always(
            resources=[
                {"resource_type": TOPIC_RESOURCE, "resource_name": TOPIC, "configuration_keys": ["cleanup.policy"]},
                {"resource_type": 99, "resource_name": "x", "configuration_keys": None},
            ]
        ),
    )
    changed = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": [{"name": key, "value": value}]}
        for name, key, value in (
            (TOPIC, "retention.ms", "1000000"),
            (UNKNOWN, "retention.ms", "1"),
            ("new-2", "retention.ms", "x"),
            ("new-3", "nothing", "x"),
        )
    ]
    yield Ordinary("right and wrong ones", ApiKey.INCREMENTAL_ALTER_CONFIGS, always(resources=changed))
    yield Ordinary("right and wrong ones", ApiKey.ALTER_CONFIGS, always(resources=changed, validate_only=True))


def _about_records() -> Iterator[Ordinary]:
    yield Ordinary(
        "to a topic and to none",
        ApiKey.PRODUCE,
        lambda context: {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                {"name": name, "topic_id": id_, "partition_data": [{"index": 0, "records": context.records()}]}
                for name, id_ in ((TOPIC, context.topic_id), (UNKNOWN, UNKNOWN_ID))
            ],
        },
        (3, 99),
    )
    yield Ordinary(
        "of a topic, beyond its end, and of none",
        ApiKey.FETCH,
        lambda context: {
            "replica_id": -1,
            "max_wait_ms": 0,
            "max_bytes": 1 << 20,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": name,
                    "topic_id": id_,
                    "partitions": [
                        {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "log_start_offset": -1}
                        for offset in offsets
                    ],
                }
                for name, id_, offsets in ((TOPIC, context.topic_id, (10_000,)), (UNKNOWN, UNKNOWN_ID, (0,)))
            ],
        },
    )
    for isolation in (0, 1):
        yield Ordinary(
            f"what is there, with isolation level {isolation}",
            ApiKey.FETCH,
            lambda context, isolation=isolation: {  # type: ignore[misc]
                "replica_id": -1,
                "max_wait_ms": 0,
                "max_bytes": 1 << 20,
                "isolation_level": isolation,
                "session_epoch": -1,
                "topics": [
                    {
                        "topic": TOPIC,
                        "topic_id": context.topic_id,
                        "partitions": [
                            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                            for index, offset in ((0, 0), (7, 0))
                        ],
                    }
                ],
            },
        )
    for timestamp in (-1, -2, -3, 0, 2**60):
        yield Ordinary(
            f"at {timestamp}",
            ApiKey.LIST_OFFSETS,
            always(
                replica_id=-1,
                topics=[
                    {"name": name, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
                    for name in (TOPIC, UNKNOWN)
                ],
            ),
        )
    yield Ordinary(
        "of two topics",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        always(
            replica_id=-1,
            topics=[
                {"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}]}
                for name, epoch in ((TOPIC, 0), (TOPIC, 5), (UNKNOWN, 0))
            ][1:],
        ),
    )
    yield Ordinary(
        "up to the start, too far, of none",
        ApiKey.DELETE_RECORDS,
        always(
            topics=[
                {"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}
                for name, offset in ((TOPIC, 0), (UNKNOWN, 0))
            ],
            timeout_ms=10_000,
        ),
    )
    yield Ordinary(
        "of two topics",
        ApiKey.DESCRIBE_PRODUCERS,
        always(topics=[{"name": name, "partition_indexes": [0]} for name in (TOPIC, UNKNOWN)]),
    )
    yield Ordinary("of two topics", ApiKey.DESCRIBE_LOG_DIRS, always(topics=[{"topic": TOPIC, "partitions": [0]}]))
    yield Ordinary(
        "to a directory that is not there",
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        always(dirs=[{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]),
    )


def _about_groups() -> Iterator[Ordinary]:
    keys = {"key": GROUP, "coordinator_keys": [GROUP, ""]}
    yield Ordinary("of a group", ApiKey.FIND_COORDINATOR, always(key_type=0, **keys))
    yield Ordinary("of an unknown kind", ApiKey.FIND_COORDINATOR, always(key_type=9, **keys), (1, 99))
    yield Ordinary(
        "two groups",
        ApiKey.DESCRIBE_GROUPS,
        always(groups=[GROUP, UNKNOWN, ""], include_authorized_operations=True),
    )
    yield Ordinary("without operations", ApiKey.DESCRIBE_GROUPS, always(groups=[GROUP]))
    yield Ordinary("all", ApiKey.LIST_GROUPS, always())
    yield Ordinary("those that are stable", ApiKey.LIST_GROUPS, always(states_filter=["Stable"]), (4, 99))
    yield Ordinary(
        "without a member",
        ApiKey.OFFSET_COMMIT,
        lambda context: {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "topics": [
                {
                    "name": name,
                    "topic_id": id_,
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}],
                }
                for name, id_ in ((TOPIC, context.topic_id), (UNKNOWN, UNKNOWN_ID))
            ],
        },
    )
    yield Ordinary(
        "some partitions",
        ApiKey.OFFSET_FETCH,
        lambda context: {
            "group_id": GROUP,
            "topics": [{"name": TOPIC, "partition_indexes": [0, 5]}, {"name": UNKNOWN, "partition_indexes": [0]}],
            "groups": [
                {
                    "group_id": group,
                    "topics": [
                        {"name": TOPIC, "topic_id": context.topic_id, "partition_indexes": [0, 5]},
                        {"name": UNKNOWN, "topic_id": UNKNOWN_ID, "partition_indexes": [0]},
                    ],
                }
                for group in (GROUP, UNKNOWN)
            ],
        },
    )
    yield Ordinary(
        "all partitions",
        ApiKey.OFFSET_FETCH,
        always(
            group_id=GROUP, topics=None, groups=[{"group_id": GROUP, "topics": None}, {"group_id": "", "topics": None}]
        ),
        (2, 99),
    )
    member = {"group_id": UNKNOWN, "member_id": "nobody"}
    yield Ordinary("of an unknown member", ApiKey.HEARTBEAT, always(generation_id=1, **member))
    yield Ordinary(
        "of an unknown member",
        ApiKey.LEAVE_GROUP,
        always(members=[{"member_id": "nobody", "group_instance_id": None}], **member),
    )
    yield Ordinary(
        "of an unknown member",
        ApiKey.SYNC_GROUP,
        always(generation_id=1, protocol_type="consumer", protocol_name="range", **member),
    )
    joining = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
    yield Ordinary(
        "of an unknown member",
        ApiKey.JOIN_GROUP,
        always(protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}], **joining, **member),
    )
    yield Ordinary(
        "a new member",
        ApiKey.JOIN_GROUP,
        lambda context: {
            "group_id": f"joined-{context.version}",
            "member_id": "",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
            **joining,
        },
    )
    yield Ordinary(
        "a static member",
        ApiKey.JOIN_GROUP,
        lambda context: {
            "group_id": f"static-{context.version}",
            "member_id": "",
            "group_instance_id": "instance",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
            **joining,
        },
        (5, 99),
    )
    yield Ordinary(
        "of a joined group", ApiKey.DESCRIBE_GROUPS, always(groups=["joined-3"], include_authorized_operations=True)
    )
    yield Ordinary(
        "one that is not there",
        ApiKey.DELETE_GROUPS,
        always(groups_names=[UNKNOWN, ""]),
    )
    yield Ordinary(
        "of a topic and of none",
        ApiKey.OFFSET_DELETE,
        always(
            group_id=UNKNOWN,
            topics=[{"name": name, "partitions": [{"partition_index": 0}]} for name in (TOPIC, UNKNOWN)],
        ),
    )
    yield Ordinary(
        "some groups",
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        always(group_ids=[GROUP, UNKNOWN, ""], include_authorized_operations=True),
    )
    yield Ordinary(
        "a new member",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda context: {
            "group_id": f"modern-{context.version}",
            "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "member_epoch": 0,
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        },
    )
    yield Ordinary(
        "a group with a member",
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        always(group_ids=["modern-0", "modern-1"], include_authorized_operations=True),
    )
    yield Ordinary(
        "of an unknown member",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        always(group_id="modern-0", member_id="nobody", member_epoch=5),
    )


def _about_transactions() -> Iterator[Ordinary]:
    yield Ordinary("without an id", ApiKey.INIT_PRODUCER_ID, always(transactional_id=None, transaction_timeout_ms=1000))
    yield Ordinary(
        "with an id",
        ApiKey.INIT_PRODUCER_ID,
        lambda context: {"transactional_id": f"tx-{context.version}", "transaction_timeout_ms": 60_000},
    )
    yield Ordinary(
        "with wrong ones", ApiKey.INIT_PRODUCER_ID, always(transactional_id="", transaction_timeout_ms=60_000)
    )
    producer = {"producer_id": 12_345_678, "producer_epoch": 0}
    yield Ordinary(
        "of an unknown producer",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        always(
            v3_and_below_transactional_id="tx-0",
            v3_and_below_producer_id=12_345_678,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
            transactions=[{"transactional_id": "tx-0", **producer, "topics": [{"name": TOPIC, "partitions": [0]}]}],
        ),
    )
    yield Ordinary(
        "of an unknown producer",
        ApiKey.ADD_OFFSETS_TO_TXN,
        always(transactional_id="tx-0", group_id=GROUP, **producer),
    )
    yield Ordinary(
        "of an unknown producer", ApiKey.END_TXN, always(transactional_id="tx-0", committed=True, **producer)
    )
    yield Ordinary("all", ApiKey.LIST_TRANSACTIONS, always())
    yield Ordinary(
        "of unknown states", ApiKey.LIST_TRANSACTIONS, always(state_filters=["Strange"], producer_id_filters=[1])
    )
    yield Ordinary("two of them", ApiKey.DESCRIBE_TRANSACTIONS, always(transactional_ids=["tx-0", UNKNOWN, ""]))
    yield Ordinary(
        "of an unknown producer",
        ApiKey.TXN_OFFSET_COMMIT,
        always(
            transactional_id="tx-0",
            group_id=GROUP,
            generation_id=-1,
            member_id="",
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
            **producer,
        ),
    )


def _about_the_cluster() -> Iterator[Ordinary]:
    yield Ordinary("with operations", ApiKey.DESCRIBE_CLUSTER, always(include_cluster_authorized_operations=True))
    yield Ordinary("without operations", ApiKey.DESCRIBE_CLUSTER, always())
    yield Ordinary("of controllers", ApiKey.DESCRIBE_CLUSTER, always(endpoint_type=2), (1, 99))
    acl = {"resource_type": 2, "resource_pattern_type": LITERAL, "principal": "User:ann", "host": "*"}
    yield Ordinary(
        "a right one and a wrong one",
        ApiKey.CREATE_ACLS,
        lambda context: {
            "creations": [
                {**acl, "resource_name": f"acl-{context.version}", "operation": READ, "permission_type": ALLOW},
                {**acl, "resource_name": "", "operation": READ, "permission_type": ALLOW},
                {**acl, "resource_name": "x", "operation": READ, "permission_type": ALLOW, "principal": "ann"},
            ]
        },
    )
    filters = {"resource_type_filter": 2, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
    yield Ordinary("one", ApiKey.DESCRIBE_ACLS, always(resource_name_filter="acl-1", **filters))
    yield Ordinary("none", ApiKey.DESCRIBE_ACLS, always(resource_name_filter="acl-none", **filters))
    yield Ordinary(
        "one and none",
        ApiKey.DELETE_ACLS,
        lambda context: {
            "filters": [{**filters, "resource_name_filter": name} for name in (f"acl-{context.version}", "acl-none")]
        },
    )
    yield Ordinary("of two users", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, always(users=[{"name": "x"}, {"name": ""}]))
    yield Ordinary("of all", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, always(users=None))
    yield Ordinary(
        "wrong ones",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        always(
            deletions=[{"name": "x", "mechanism": 1}],
            upsertions=[{"name": "y", "mechanism": 1, "iterations": 5, "salt": b"s", "salted_password": b"p"}],
        ),
    )
    yield Ordinary(
        "of the metadata log and of another",
        ApiKey.DESCRIBE_QUORUM,
        always(topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]),
    )
    yield Ordinary(
        "wrong ones",
        ApiKey.UPDATE_FEATURES,
        always(
            timeout_ms=10_000,
            feature_updates=[{"feature": "nothing", "max_version_level": 1, "upgrade_type": 1}],
            validate_only=True,
        ),
    )
    yield Ordinary("an unknown one", ApiKey.UNREGISTER_BROKER, always(broker_id=77))
    yield Ordinary("again", ApiKey.SASL_HANDSHAKE, always(mechanism="PLAIN"))
    yield Ordinary("again", ApiKey.SASL_AUTHENTICATE, always(auth_bytes=b"\0admin\0pw"))
