"""Creating, growing and deleting topics: each error, and the records of valid requests."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from clusters import applied, cluster, create, topic, topic_rules, with_topics

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID, uuid_text
from moldau.base.steps import Steps, finish
from moldau.base.topic_names import METADATA_TOPIC
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller import topics as topics_module
from moldau.metadata.controller.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
    new_uuid,
)
from moldau.metadata.image import MetadataImage
from moldau.wire.log_records.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from moldau.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

THREE = cluster([1, 2, 3])
E = ErrorCode


# --- create


def test_the_records_of_a_new_topic() -> None:
    decision = create(THREE, topic("a", 2, 3, configs={"retention.ms": "5"}))
    created, config, *partitions = decision.records
    assert isinstance(created, TopicRecord)
    assert isinstance(config, ConfigRecord)
    assert (created.name, config.name, config.value) == ("a", "retention.ms", "5")
    for index, record in enumerate(partitions):
        assert isinstance(record, PartitionRecord)
        assert (record.partition_id, record.topic_id) == (index, created.topic_id)
        assert sorted(record.replicas) == [1, 2, 3]
        assert list(record.isr) == list(record.replicas)
        assert (record.leader, record.leader_epoch, record.partition_epoch) == (record.replicas[0], 0, 0)
        assert record.directories == [bytes([broker]) * 16 for broker in record.replicas]
    result = decision.response.topics[0]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 3)
    assert result.topic_id == created.topic_id


def test_defaults_replace_missing_values() -> None:
    decision = create(THREE, topic("a"), partitions=4, replication_factor=2)
    result = decision.response.topics[0]
    assert (result.num_partitions, result.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("requested", "code", "reason"),
    [
        (topic(""), E.INVALID_TOPIC_EXCEPTION, "empty"),
        (topic("a/b"), E.INVALID_TOPIC_EXCEPTION, "invalid"),
        (topic("x" * 250), E.INVALID_TOPIC_EXCEPTION, "longer"),
        (topic("there.is"), E.TOPIC_ALREADY_EXISTS, "already exists"),
        (topic("there_is"), E.INVALID_TOPIC_EXCEPTION, "collides with existing topic: there.is"),
        (topic(METADATA_TOPIC), E.INVALID_REQUEST, "prohibited"),
        (topic("n", 0), E.INVALID_PARTITIONS, "non-positive"),
        (topic("n", -2), E.INVALID_PARTITIONS, "non-positive"),
        (topic("n", 1, 0), E.INVALID_REPLICATION_FACTOR, "non-positive"),
        (topic("n", 1, -2), E.INVALID_REPLICATION_FACTOR, "non-positive"),
        (topic("n", 1, 4), E.INVALID_REPLICATION_FACTOR, "only 3 broker"),
        (topic("n", PARTITIONS_PER_REQUEST_MAX + 1), E.POLICY_VIOLATION, "Excessively large"),
        (topic("n", 2**31 - 1), E.POLICY_VIOLATION, "Excessively large"),
        (topic("n", configs={"no.such": "1"}), E.INVALID_CONFIG, "no.such"),
        (topic("n", configs={"retention.ms": "soon"}), E.INVALID_CONFIG, "retention.ms"),
        (topic("n", configs={"retention.ms": None}), E.INVALID_CONFIG, "Null value"),
        (topic("n", 1, assign={0: [1]}), E.INVALID_REQUEST, "numPartitions was not set to -1"),
        (topic("n", -1, 1, assign={0: [1]}), E.INVALID_REQUEST, "replication factor was not set to -1"),
        (topic("n", assign={0: []}), E.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
        (topic("n", assign={0: [9]}), E.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (topic("n", assign={0: [-1]}), E.INVALID_REPLICA_ASSIGNMENT, "broker -1"),
        (topic("n", assign={0: [1, 1]}), E.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (topic("n", assign=[(0, [1]), (0, [2])]), E.INVALID_REPLICA_ASSIGNMENT, "multiple"),
        (topic("n", assign={1: [1]}), E.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
        (topic("n", assign={0: [1], 2: [1]}), E.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
        (topic("n", assign={-1: [1], 0: [1]}), E.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
        (topic("n", assign={0: [1], 1: [1, 2]}), E.INVALID_REPLICA_ASSIGNMENT, "uneven"),
        (
            topic("n", assign={index: [1] for index in range(PARTITIONS_PER_REQUEST_MAX + 1)}),
            E.POLICY_VIOLATION,
            "Excessively large",
        ),
    ],
    ids=lambda value: value.name[:12] if isinstance(value, CreatableTopic) else "",
)
def test_an_invalid_topic_is_refused_and_the_others_are_created(
    requested: CreatableTopic, code: ErrorCode, reason: str
) -> None:
    image = with_topics(THREE, topic("there.is"))
    decision = create(image, topic("before"), requested, topic("after"))
    results = {result.name: result for result in decision.response.topics}
    assert results[requested.name].error_code == code, results[requested.name].error_message
    assert reason in (results[requested.name].error_message or "")
    assert results["before"].error_code == results["after"].error_code == 0
    assert {each.name for each in decision.records if isinstance(each, TopicRecord)} == {"before", "after"}


def test_a_duplicate_name_is_refused_with_one_result() -> None:
    decision = create(THREE, topic("twice"), topic("once"), topic("twice", 3))
    assert [(each.name, each.error_code) for each in decision.response.topics] == [
        ("twice", E.INVALID_REQUEST),
        ("once", 0),
    ]
    assert [each.name for each in decision.records if isinstance(each, TopicRecord)] == ["once"]


def test_of_two_colliding_names_only_the_first_is_created() -> None:
    decision = create(THREE, topic("a.b"), topic("a_b"))
    assert [each.error_code for each in decision.response.topics] == [0, E.INVALID_TOPIC_EXCEPTION]


def test_the_partition_limit_applies_to_the_whole_request() -> None:
    half = PARTITIONS_PER_REQUEST_MAX // 2
    decision = create(THREE, topic("a", half), topic("b", half), topic("c", 1), topic("d", assign={0: [1]}))
    assert [each.error_code for each in decision.response.topics] == [0, 0, E.POLICY_VIOLATION, E.POLICY_VIOLATION]


def test_validate_only_answers_the_same_and_writes_no_records() -> None:
    validated, created = create(THREE, topic("a", 2), validate_only=True), create(THREE, topic("a", 2))
    assert validated.records == ()
    assert validated.response.topics[0].num_partitions == created.response.topics[0].num_partitions == 2
    refused = create(THREE, topic("a", 0), validate_only=True)
    assert refused.response.topics[0].error_code == E.INVALID_PARTITIONS


def test_manual_assignments_are_used_unchanged() -> None:
    decision = create(THREE, topic("a", assign={1: [3, 1], 0: [2, 3]}))
    partitions = [each for each in decision.records if isinstance(each, PartitionRecord)]
    assert [(each.partition_id, each.replicas, each.leader) for each in partitions] == [(0, (2, 3), 2), (1, (3, 1), 3)]


def test_fenced_brokers_lead_nothing_and_are_chosen_last() -> None:
    image = cluster([1, 2, 3], fenced=[2])
    for partition in with_topics(image, topic("a", 6, 2)).topics["a"].partitions:
        assert set(partition.replicas) == {1, 3}
    for partition in with_topics(image, topic("a", 6, 3)).topics["a"].partitions:
        assert (set(partition.isr), partition.replicas[2], partition.leader) == ({1, 3}, 2, partition.replicas[0])
    assert create(image, topic("a", 1, 4)).response.topics[0].error_code == E.INVALID_REPLICATION_FACTOR
    refusal = create(cluster([1, 2], fenced=[1, 2]), topic("a", 1, 1)).response.topics[0]
    assert (refusal.error_code, "fenced" in refusal.error_message) == (E.INVALID_REPLICATION_FACTOR, True)
    partition = create(image, topic("a", assign={0: [2, 3]})).records[1]
    assert isinstance(partition, PartitionRecord)
    assert (partition.isr, partition.leader, partition.replicas) == ((3,), 3, (2, 3))
    refused = create(image, topic("a", assign={0: [2]}))
    assert refused.response.topics[0].error_code == E.INVALID_REPLICA_ASSIGNMENT
    assert refused.records == ()


def test_a_decision_does_not_change_the_image() -> None:
    before = repr(THREE)
    create(THREE, topic("a", 3, 2, configs={"retention.ms": "5"}))
    assert repr(THREE) == before


def test_new_ids_are_not_reserved_and_do_not_begin_with_a_dash() -> None:
    rng = Random(5)
    ids = [new_uuid(rng) for _ in range(3000)]
    assert len(set(ids)) == len(ids)
    assert not any(uuid_text(each).startswith("-") for each in ids)

    class Zeros(Random):
        drawn = 0

        def randbytes(self, n: int) -> bytes:
            self.drawn += 1
            return [bytes(16), bytes(15) + b"\x01", b"\xf8" * 16, b"\x07" * 16][self.drawn - 1]

    assert new_uuid(Zeros()) == b"\x07" * 16


# --- grow


def grow(
    image: MetadataImage, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> tuple[list[object], list[object]]:
    decision = finish(
        decide_create_partitions(image, CreatePartitionsRequest(list(topics), validate_only=validate_only), Random(1))
    )
    return list(decision.response.results), list(decision.records)


def grow_to(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    assignment_messages = (
        None if assignments is None else [CreatePartitionsAssignment(brokers) for brokers in assignments]
    )
    return CreatePartitionsTopic(name, count, assignment_messages)


GROWABLE = with_topics(THREE, topic("a", 2, 2), topic("b", 1, 1))


def test_new_partitions_have_the_same_replication_factor() -> None:
    results, records = grow(GROWABLE, grow_to("a", 4))
    assert [(each.name, each.error_code) for each in results] == [("a", 0)]  # type: ignore[attr-defined]
    assert [(each.partition_id, len(each.replicas)) for each in records] == [(2, 2), (3, 2)]  # type: ignore[attr-defined]
    image = applied(GROWABLE, records)  # type: ignore[arg-type]
    assert len(image.topics["a"].partitions) == 4
    assert image.topics["a"].partitions[:2] == GROWABLE.topics["a"].partitions


def test_new_partitions_with_a_manual_assignment() -> None:
    _, records = grow(GROWABLE, grow_to("a", 4, [[3, 1], [1, 2]]))
    assert [each.replicas for each in records] == [(3, 1), (1, 2)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("requested", "code", "reason"),
    [
        (grow_to("nowhere", 3), E.UNKNOWN_TOPIC_OR_PARTITION, "None"),
        (grow_to("a", 2), E.INVALID_PARTITIONS, "already has 2"),
        (grow_to("a", 1), E.INVALID_PARTITIONS, "not be an increase"),
        (grow_to("a", 0), E.INVALID_PARTITIONS, "not be an increase"),
        (grow_to("a", -1), E.INVALID_PARTITIONS, "not be an increase"),
        (grow_to("a", PARTITIONS_PER_REQUEST_MAX + 3), E.POLICY_VIOLATION, "Excessively"),
        (grow_to("a", 4, [[1, 2]]), E.INVALID_REPLICA_ASSIGNMENT, "only 1 assignment"),
        (grow_to("a", 3, [[1, 2], [1, 2]]), E.INVALID_REPLICA_ASSIGNMENT, "2 assignment"),
        (grow_to("a", 3, []), E.INVALID_REPLICA_ASSIGNMENT, "0 assignment"),
        (grow_to("a", 3, [[1]]), E.INVALID_REPLICA_ASSIGNMENT, "must have 2"),
        (grow_to("a", 3, [[1, 9]]), E.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (grow_to("a", 3, [[1, 1]]), E.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (grow_to("a", 3, [[]]), E.INVALID_REPLICA_ASSIGNMENT, "empty"),
    ],
)
def test_an_invalid_partition_count_or_assignment_is_refused(
    requested: CreatePartitionsTopic, code: ErrorCode, reason: str
) -> None:
    results, records = grow(GROWABLE, requested, grow_to("b", 2))
    assert [each.error_code for each in results] == [code, 0]  # type: ignore[attr-defined]
    assert reason in str(results[0].error_message)  # type: ignore[attr-defined]
    assert len(records) == 1


def test_a_duplicate_topic_and_validate_only_add_no_partitions() -> None:
    results, records = grow(GROWABLE, grow_to("a", 3), grow_to("a", 4))
    assert [(each.name, each.error_code) for each in results] == [("a", E.INVALID_REQUEST)]  # type: ignore[attr-defined]
    assert records == []
    results, records = grow(GROWABLE, grow_to("a", 3), validate_only=True)
    assert ([each.error_code for each in results], records) == ([0], [])  # type: ignore[attr-defined]


def test_the_partition_limit_applies_to_all_topics_that_grow() -> None:
    half = PARTITIONS_PER_REQUEST_MAX // 2
    image = with_topics(GROWABLE, topic("c"))
    results, records = grow(image, grow_to("a", 2 + half), grow_to("b", 1 + half), grow_to("c", 2))
    assert [each.error_code for each in results] == [0, 0, E.POLICY_VIOLATION]  # type: ignore[attr-defined]
    assert len(records) == PARTITIONS_PER_REQUEST_MAX


# --- refused after their partitions were built


def refuse(partitions: int) -> None:
    raise KafkaError(E.THROTTLING_QUOTA_EXCEEDED)


def built_per_step(steps: Steps[object], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run the steps; return how many partitions each of them checked or built."""
    counts = [0]

    def counted(name: str) -> None:
        original = getattr(topics_module, name)

        def call(*arguments: object) -> object:
            counts[-1] += 1
            return original(*arguments)

        monkeypatch.setattr(topics_module, name, call)

    counted("partition_record")
    counted("check_assignment")
    for _ in steps:
        counts.append(0)
    return counts


def test_topics_beyond_a_quota_are_decided_in_steps_and_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(20)]
    request = CreateTopicsRequest(topics=[topic(name, LISTED_A_TURN - 1) for name in names])
    counts = built_per_step(decide_create_topics(THREE, request, topic_rules(), Random(1), refuse), monkeypatch)
    assert max(counts) <= 2 * LISTED_A_TURN
    assert PARTITIONS_PER_REQUEST_MAX // 2 < sum(counts) <= PARTITIONS_PER_REQUEST_MAX


@pytest.mark.parametrize(("topics", "configs", "steps"), [(60, 663, 20), (1_000, 1, 50)])
def test_topics_with_configs_are_decided_in_steps(topics: int, configs: int, steps: int) -> None:
    overrides: dict[str, str | None] = {f"unknown.{number}": "" for number in range(configs)}
    request = CreateTopicsRequest(topics=[topic(f"t{number}", configs=overrides) for number in range(topics)])
    assert sum(1 for _ in decide_create_topics(THREE, request, topic_rules(), Random(1))) >= steps


def test_partitions_beyond_a_quota_are_decided_in_steps_and_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(20)]
    image = with_topics(THREE, *(topic(name, 1) for name in names))
    request = CreatePartitionsRequest([grow_to(name, LISTED_A_TURN) for name in names])
    counts = built_per_step(decide_create_partitions(image, request, Random(1), refuse), monkeypatch)
    assert max(counts) <= 2 * LISTED_A_TURN
    assert PARTITIONS_PER_REQUEST_MAX // 2 < sum(counts) <= PARTITIONS_PER_REQUEST_MAX


def test_invalid_assignments_are_decided_in_steps_and_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = LISTED_A_TURN - 1
    names = [f"t{number}" for number in range(20)]
    uneven = {index: [1] if index else [1, 2] for index in range(partitions)}
    request = CreateTopicsRequest(topics=[topic(name, assign=uneven) for name in names])
    counts = built_per_step(decide_create_topics(THREE, request, topic_rules(), Random(1)), monkeypatch)
    assert max(counts) <= 2 * LISTED_A_TURN
    assert PARTITIONS_PER_REQUEST_MAX // 2 < sum(counts) <= PARTITIONS_PER_REQUEST_MAX


# --- delete


def delete(
    image: MetadataImage, *states: DeleteTopicState, enabled: bool = True
) -> tuple[list[tuple[str | None, int]], list[bytes]]:
    decision = finish(
        decide_delete_topics(image, DeleteTopicsRequest(topics=list(states)), topic_rules(delete_enabled=enabled))
    )
    for record in decision.records:
        assert isinstance(record, RemoveTopicRecord)
    results = [(result.name, result.error_code) for result in decision.response.responses]
    return results, [record.topic_id for record in decision.records]  # type: ignore[attr-defined]


A_ID = GROWABLE.topics["a"].id


def test_topics_are_deleted_by_name_and_by_id() -> None:
    assert delete(GROWABLE, DeleteTopicState("a")) == ([("a", 0)], [A_ID])
    assert delete(GROWABLE, DeleteTopicState(None, A_ID)) == ([("a", 0)], [A_ID])
    by_names = finish(decide_delete_topics(GROWABLE, DeleteTopicsRequest(topic_names=["b", "a"]), topic_rules()))
    assert [each.error_code for each in by_names.response.responses] == [0, 0]
    assert not applied(GROWABLE, by_names.records).topics


def test_unknown_and_ambiguous_topics_are_not_deleted() -> None:
    results, records = delete(
        GROWABLE,
        DeleteTopicState("nowhere"),
        DeleteTopicState(None, b"?" * 16),
        DeleteTopicState("a", A_ID),
        DeleteTopicState(None, ZERO_UUID),
        DeleteTopicState("b"),
    )
    assert [code for _, code in results] == [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_ID,
        E.INVALID_REQUEST,
        E.INVALID_REQUEST,
        0,
    ]
    assert records == [GROWABLE.topics["b"].id]


def test_a_topic_is_deleted_at_most_once() -> None:
    results, records = delete(GROWABLE, DeleteTopicState("a"), DeleteTopicState("a"))
    assert {code for _, code in results} == {E.INVALID_REQUEST}
    assert records == []
    _, records = delete(GROWABLE, DeleteTopicState("a"), DeleteTopicState(None, A_ID))
    assert len(records) == 1, "by name and by id: a second RemoveTopicRecord could not be applied"


def test_deletion_can_be_disabled() -> None:
    assert delete(GROWABLE, DeleteTopicState("a"), enabled=False) == ([("a", E.TOPIC_DELETION_DISABLED)], [])


# --- names on a file system that ignores case


@pytest.mark.parametrize("exists", [True, False], ids=["created before", "created by the same request"])
def test_names_that_differ_only_in_case_collide_if_the_file_system_ignores_case(exists: bool) -> None:
    image = with_topics(THREE, topic("Orders")) if exists else THREE
    topics = [topic("orders")] if exists else [topic("Orders"), topic("orders")]
    caseless = replace(topic_rules(), case_insensitive_names=True)
    decision = finish(decide_create_topics(image, CreateTopicsRequest(topics=topics), caseless, Random(1)))
    refused = decision.response.topics[-1]
    assert refused.error_code == E.INVALID_TOPIC_EXCEPTION
    assert refused.error_message == (
        "Topic 'orders' collides with existing topic: Orders; the controller's file system ignores case."
    )
    assert "orders" not in [each.name for each in decision.records if isinstance(each, TopicRecord)]


def test_names_that_differ_only_in_case_do_not_collide_elsewhere() -> None:
    decision = create(THREE, topic("Orders"), topic("orders"))
    assert [each.error_code for each in decision.response.topics] == [0, 0]
