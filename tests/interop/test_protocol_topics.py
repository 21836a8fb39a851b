"""CreateTopics, DeleteTopics and CreatePartitions: errors, their codes, and the returned configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from batches import batch
from harness.patience import wait_until
from kio.schema.errors import ErrorCode
from protocol_requests import by_name, metadata, produce, topic_id
from wire_client import Wire, message

CreateTopic = Callable[..., str]
NO_SUCH_BROKER = 4711


def new_topic(name: str, partitions: int = 1, replication: int = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replication, **fields}


def create(wire: Wire, *topics: dict[str, Any], validate_only: bool = False, version: int = 7) -> Any:
    fields = {"topics": list(topics), "timeout": 10_000, "validate_only": validate_only}
    return wire.ask(message("create_topics", version, **fields))


def code(wire: Wire, *topics: dict[str, Any], **fields: Any) -> int:
    (shown,) = create(wire, *topics, **fields).topics
    return int(shown.error_code)


def assignment(*brokers: list[int]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(brokers)]


def exists(wire: Wire, name: str) -> bool:
    (shown,) = metadata(wire, [by_name(name)]).topics
    return bool(shown.error_code == 0)


@pytest.fixture
def node(wire: Wire) -> int:
    return int(metadata(wire, []).brokers[0].node_id)


# ---- CreateTopics


def test_the_response_describes_the_created_topic(wire: Wire, topic: Callable[[], str]) -> None:
    name = topic()
    (shown,) = create(wire, new_topic(name, 3, configs=[{"name": "retention.ms", "value": "5000"}])).topics
    assert (shown.error_code, shown.name, shown.num_partitions, shown.replication_factor) == (0, name, 3, 1)
    assert shown.error_message is None
    assert isinstance(shown.topic_id, UUID)
    configs = {config.name: config for config in shown.configs}
    assert configs["retention.ms"].value == "5000"
    assert configs["retention.ms"].config_source == 1
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].config_source == 5


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_of_create(wire: Wire, topic: Callable[[], str], version: int) -> None:
    name = topic()
    assert code(wire, new_topic(name), version=version) == 0
    assert code(wire, new_topic(name), version=version) == ErrorCode.topic_already_exists


def test_validate_only_checks_and_creates_nothing(
    wire: Wire, topic: Callable[[], str], create_topic: CreateTopic
) -> None:
    name = topic()
    (shown,) = create(wire, new_topic(name, 2), validate_only=True).topics
    assert (shown.error_code, shown.num_partitions) == (0, 2)
    assert not exists(wire, name)
    assert code(wire, new_topic(create_topic()), validate_only=True) == ErrorCode.topic_already_exists
    assert code(wire, new_topic(name, 0), validate_only=True) == ErrorCode.invalid_partitions


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ž", "a" * 250])
def test_invalid_names_are_refused(wire: Wire, name: str) -> None:
    assert code(wire, new_topic(name)) == ErrorCode.invalid_topic_exception


def test_the_longest_name_is_accepted(wire: Wire, topic: Callable[[], str]) -> None:
    name = topic().ljust(249, "x")
    assert code(wire, new_topic(name)) == 0


def test_names_that_collide_in_metrics_are_refused(wire: Wire, topic: Callable[[], str]) -> None:
    """'.' and '_' become one character in metric names, so both cannot exist."""
    name = topic()
    assert code(wire, new_topic(f"{name}.a")) == 0
    assert code(wire, new_topic(f"{name}_a")) == ErrorCode.invalid_topic_exception


@pytest.mark.parametrize(
    ("partitions", "replication", "expected"),
    [(0, 1, 37), (-2, 1, 37), (1, 0, 38), (1, -2, 38), (1, 5, 38), (-1, -1, 0), (-1, 1, 0), (1, -1, 0)],
)
def test_partition_and_replica_counts_are_checked(
    wire: Wire, topic: Callable[[], str], partitions: int, replication: int, expected: int
) -> None:
    assert code(wire, new_topic(topic(), partitions, replication)) == expected


def test_manual_assignment(wire: Wire, topic: Callable[[], str], node: int) -> None:
    name = topic()
    (shown,) = create(wire, new_topic(name, -1, -1, assignments=assignment([node], [node], [node]))).topics
    assert (shown.error_code, shown.num_partitions, shown.replication_factor) == (0, 3, 1)


def test_invalid_manual_assignments_are_refused(wire: Wire, topic: Callable[[], str], node: int) -> None:
    wrong = {
        "an unknown broker": (assignment([NO_SUCH_BROKER]), -1, -1, 39),
        "a broker twice": (assignment([node, node]), -1, -1, 39),
        "no broker": (assignment([]), -1, -1, 39),
        "partitions not from 0": ([{"partition_index": 1, "broker_ids": [node]}], -1, -1, 39),
        "a partition twice": ([{"partition_index": 0, "broker_ids": [node]}] * 2, -1, -1, 39),
        "a partition count as well": (assignment([node]), 1, -1, 42),
        "a replication factor as well": (assignment([node]), -1, 1, 42),
    }
    found = {
        case: code(wire, new_topic(topic(), partitions, replication, assignments=made))
        for case, (made, partitions, replication, _) in wrong.items()
    }
    assert found == {case: expected for case, (*_, expected) in wrong.items()}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("no.such.config", "1", 40),
        ("retention.ms", "soon", 40),
        ("retention.ms", "-5", 40),
        ("cleanup.policy", "keep", 40),
        ("min.insync.replicas", "0", 40),
        ("compression.type", "brotli", 40),
        ("retention.ms", None, 40),
        ("retention.ms", "-1", 0),
        ("cleanup.policy", "compact,delete", 0),
        ("compression.type", "zstd", 0),
    ],
)
def test_topic_configs_are_checked(
    wire: Wire, topic: Callable[[], str], key: str, value: str | None, expected: int
) -> None:
    assert code(wire, new_topic(topic(), configs=[{"name": key, "value": value}])) == expected


def test_a_duplicate_name_is_refused(wire: Wire, topic: Callable[[], str]) -> None:
    name, other = topic(), topic()
    answer = create(wire, new_topic(name), new_topic(name), new_topic(other))
    assert {shown.name: int(shown.error_code) for shown in answer.topics} == {name: 42, other: 0}
    assert not exists(wire, name)


def test_one_failure_does_not_stop_the_others(wire: Wire, topic: Callable[[], str]) -> None:
    good, bad = topic(), topic()
    answer = create(wire, new_topic(bad, 0), new_topic(good))
    assert {shown.name: int(shown.error_code) for shown in answer.topics} == {bad: 37, good: 0}


def test_the_metadata_log_cannot_be_created(wire: Wire) -> None:
    assert code(wire, new_topic("__cluster_metadata")) == ErrorCode.invalid_request


# ---- DeleteTopics


def delete(wire: Wire, *topics: dict[str, Any]) -> Any:
    return wire.ask(message("delete_topics", 6, topics=list(topics), timeout=10_000)).responses


def test_delete_by_id(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    identity = topic_id(wire, name)
    (shown,) = delete(wire, {"name": None, "topic_id": identity})
    assert (shown.error_code, shown.name, shown.topic_id) == (0, name, identity)
    (again,) = delete(wire, {"name": None, "topic_id": identity})
    assert (again.error_code, again.name, again.topic_id) == (ErrorCode.unknown_topic_id, None, identity)


def test_delete_by_name(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    identity = topic_id(wire, name)
    (shown,) = delete(wire, by_name(name))
    assert (shown.error_code, shown.name, shown.topic_id) == (0, name, identity)
    (again,) = delete(wire, by_name(name))
    assert (again.error_code, again.name, again.topic_id) == (ErrorCode.unknown_topic_or_partition, name, None)


def test_deleting_an_unknown_id_is_refused(wire: Wire) -> None:
    assert delete(wire, {"name": None, "topic_id": uuid4()})[0].error_code == ErrorCode.unknown_topic_id


def test_deleting_by_both_or_neither_of_name_and_id_is_refused(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    (shown,) = delete(wire, {"name": name, "topic_id": topic_id(wire, name)})
    assert shown.error_code == ErrorCode.invalid_request
    (neither,) = delete(wire, {"name": None, "topic_id": None})
    assert neither.error_code == ErrorCode.invalid_request
    assert exists(wire, name)


def test_deleting_a_duplicate_topic_is_refused(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    answers = delete(wire, by_name(name), by_name(name))
    assert {int(shown.error_code) for shown in answers} == {42}
    assert exists(wire, name)


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version_of_delete(wire: Wire, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    answer = wire.ask(message("delete_topics", version, topic_names=[name], timeout=10_000))
    assert [(shown.name, int(shown.error_code)) for shown in answer.responses] == [(name, 0)]


def test_partitions_of_a_deleted_topic_are_unknown(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    delete(wire, by_name(name))
    wait_until(lambda: not exists(wire, name), "the topic is deleted")
    assert produce(wire, name, batch([b"v"])).error_code == ErrorCode.unknown_topic_or_partition


# ---- CreatePartitions


def extend(wire: Wire, *topics: dict[str, Any], validate_only: bool = False) -> list[tuple[str, int]]:
    made = [{"assignments": None, **each} for each in topics]
    answer = wire.ask(message("create_partitions", 3, topics=made, timeout=10_000, validate_only=validate_only))
    return [(shown.name, int(shown.error_code)) for shown in answer.results]


def test_partitions_are_added(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=1)
    assert extend(wire, {"name": name, "count": 3}) == [(name, 0)]
    wait_until(lambda: len(metadata(wire, [by_name(name)]).topics[0].partitions) == 3, "the partitions are added")


@pytest.mark.parametrize(("count", "expected"), [(2, 37), (1, 37), (0, 37), (-1, 37)])
def test_counts_that_add_no_partitions_are_refused(
    wire: Wire, create_topic: CreateTopic, count: int, expected: int
) -> None:
    name = create_topic(partitions=2)
    assert extend(wire, {"name": name, "count": count}) == [(name, expected)]


def test_adding_partitions_to_an_unknown_topic_is_refused(wire: Wire, topic: Callable[[], str]) -> None:
    name = topic()
    assert extend(wire, {"name": name, "count": 3}) == [(name, ErrorCode.unknown_topic_or_partition)]


def test_invalid_assignments_of_new_partitions_are_refused(wire: Wire, create_topic: CreateTopic, node: int) -> None:
    name = create_topic(partitions=1)

    def place(count: int, *brokers: list[int]) -> int:
        ((_, found),) = extend(
            wire, {"name": name, "count": count, "assignments": [{"broker_ids": b} for b in brokers]}
        )
        return found

    assert place(3, [node]) == ErrorCode.invalid_replica_assignment
    assert place(2, [node], [node]) == ErrorCode.invalid_replica_assignment
    assert place(2, [NO_SUCH_BROKER]) == ErrorCode.invalid_replica_assignment
    assert place(2, [node, node]) == ErrorCode.invalid_replica_assignment
    assert place(2, []) == ErrorCode.invalid_replica_assignment
    assert place(2, [node]) == 0


def test_validate_only_adds_nothing(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=1)
    assert extend(wire, {"name": name, "count": 3}, validate_only=True) == [(name, 0)]
    (shown,) = metadata(wire, [by_name(name)]).topics
    assert len(shown.partitions) == 1


def test_adding_partitions_to_a_duplicate_topic_is_refused(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=1)
    assert extend(wire, {"name": name, "count": 3}, {"name": name, "count": 4}) == [(name, ErrorCode.invalid_request)]
