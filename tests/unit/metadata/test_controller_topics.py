"""Creating, growing and deleting topics: each way to be refused, and what is recorded when not."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from clusters import applied, cluster, create, defaults, topic, with_topics

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID, uuid_text
from moldau.base.names import METADATA_TOPIC
from moldau.metadata.controller.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
    new_uuid,
)
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
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


def test_what_a_new_topic_is_made_of() -> None:
    decision = create(THREE, topic("a", 2, 3, configs={"retention.ms": "5"}))
    made, config, *partitions = decision.records
    assert isinstance(made, TopicRecord)
    assert isinstance(config, ConfigRecord)
    assert (made.name, config.name, config.value) == ("a", "retention.ms", "5")
    for index, record in enumerate(partitions):
        assert isinstance(record, PartitionRecord)
        assert (record.partition_id, record.topic_id) == (index, made.topic_id)
        assert sorted(record.replicas) == [1, 2, 3]
        assert list(record.isr) == list(record.replicas)
        assert (record.leader, record.leader_epoch, record.partition_epoch) == (record.replicas[0], 0, 0)
        assert record.directories == [bytes([broker]) * 16 for broker in record.replicas]
    result = decision.response.topics[0]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 3)
    assert result.topic_id == made.topic_id


def test_defaults_fill_in_what_is_left_out() -> None:
    decision = create(THREE, topic("a"), partitions=4, replication_factor=2)
    result = decision.response.topics[0]
    assert (result.num_partitions, result.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
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
def test_refused_and_the_others_are_made_all_the_same(wanted: CreatableTopic, code: ErrorCode, why: str) -> None:
    image = with_topics(THREE, topic("there.is"))
    decision = create(image, topic("before"), wanted, topic("after"))
    results = {result.name: result for result in decision.response.topics}
    assert results[wanted.name].error_code == code, results[wanted.name].error_message
    assert why in (results[wanted.name].error_message or "")
    assert results["before"].error_code == results["after"].error_code == 0
    assert {each.name for each in decision.records if isinstance(each, TopicRecord)} == {"before", "after"}


def test_a_name_that_comes_twice_is_refused_once_and_made_never() -> None:
    decision = create(THREE, topic("twice"), topic("once"), topic("twice", 3))
    assert [(each.name, each.error_code) for each in decision.response.topics] == [
        ("twice", E.INVALID_REQUEST),
        ("once", 0),
    ]
    assert [each.name for each in decision.records if isinstance(each, TopicRecord)] == ["once"]


def test_two_that_collide_with_each_other_are_not_both_made() -> None:
    decision = create(THREE, topic("a.b"), topic("a_b"))
    assert [each.error_code for each in decision.response.topics] == [0, E.INVALID_TOPIC_EXCEPTION]


def test_the_bound_is_on_the_request_not_on_each_topic() -> None:
    half = PARTITIONS_PER_REQUEST_MAX // 2
    decision = create(THREE, topic("a", half), topic("b", half), topic("c", 1), topic("d", assign={0: [1]}))
    assert [each.error_code for each in decision.response.topics] == [0, 0, E.POLICY_VIOLATION, E.POLICY_VIOLATION]


def test_trying_out_answers_the_same_and_records_nothing() -> None:
    tried, done = create(THREE, topic("a", 2), validate_only=True), create(THREE, topic("a", 2))
    assert tried.records == ()
    assert tried.response.topics[0].num_partitions == done.response.topics[0].num_partitions == 2
    refused = create(THREE, topic("a", 0), validate_only=True)
    assert refused.response.topics[0].error_code == E.INVALID_PARTITIONS


def test_manual_assignments_are_taken_as_they_are() -> None:
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
    nobody = create(cluster([1, 2], fenced=[1, 2]), topic("a", 1, 1)).response.topics[0]
    assert (nobody.error_code, "fenced" in nobody.error_message) == (E.INVALID_REPLICATION_FACTOR, True)
    partition = create(image, topic("a", assign={0: [2, 3]})).records[1]
    assert isinstance(partition, PartitionRecord)
    assert (partition.isr, partition.leader, partition.replicas) == ((3,), 3, (2, 3))
    refused = create(image, topic("a", assign={0: [2]}))
    assert refused.response.topics[0].error_code == E.INVALID_REPLICA_ASSIGNMENT
    assert refused.records == ()


def test_deciding_changes_nothing() -> None:
    before = repr(THREE)
    create(THREE, topic("a", 3, 2, configs={"retention.ms": "5"}))
    assert repr(THREE) == before


def test_ids_are_not_reserved_and_do_not_begin_with_a_dash() -> None:
    rng = Random(5)
    made = [new_uuid(rng) for _ in range(3000)]
    assert len(set(made)) == len(made)
    assert not any(uuid_text(each).startswith("-") for each in made)

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
    decision = decide_create_partitions(
        image, CreatePartitionsRequest(list(topics), validate_only=validate_only), Random(1)
    )
    return list(decision.response.results), list(decision.records)


def to(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(brokers) for brokers in assignments]
    return CreatePartitionsTopic(name, count, given)


GROWABLE = with_topics(THREE, topic("a", 2, 2), topic("b", 1, 1))


def test_growing_adds_at_the_end_with_the_same_factor() -> None:
    results, records = grow(GROWABLE, to("a", 4))
    assert [(each.name, each.error_code) for each in results] == [("a", 0)]  # type: ignore[attr-defined]
    assert [(each.partition_id, len(each.replicas)) for each in records] == [(2, 2), (3, 2)]  # type: ignore[attr-defined]
    image = applied(GROWABLE, records)  # type: ignore[arg-type]
    assert len(image.topics["a"].partitions) == 4
    assert image.topics["a"].partitions[:2] == GROWABLE.topics["a"].partitions


def test_growing_where_told() -> None:
    _, records = grow(GROWABLE, to("a", 4, [[3, 1], [1, 2]]))
    assert [each.replicas for each in records] == [(3, 1), (1, 2)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wanted", "code", "why"),
    [
        (to("nowhere", 3), E.UNKNOWN_TOPIC_OR_PARTITION, "does not host"),
        (to("a", 2), E.INVALID_PARTITIONS, "already has 2"),
        (to("a", 1), E.INVALID_PARTITIONS, "not be an increase"),
        (to("a", 0), E.INVALID_PARTITIONS, "not be an increase"),
        (to("a", -1), E.INVALID_PARTITIONS, "not be an increase"),
        (to("a", PARTITIONS_PER_REQUEST_MAX + 3), E.POLICY_VIOLATION, "Excessively"),
        (to("a", 4, [[1, 2]]), E.INVALID_REPLICA_ASSIGNMENT, "only 1 assignment"),
        (to("a", 3, [[1, 2], [1, 2]]), E.INVALID_REPLICA_ASSIGNMENT, "2 assignment"),
        (to("a", 3, []), E.INVALID_REPLICA_ASSIGNMENT, "0 assignment"),
        (to("a", 3, [[1]]), E.INVALID_REPLICA_ASSIGNMENT, "must have 2"),
        (to("a", 3, [[1, 9]]), E.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (to("a", 3, [[1, 1]]), E.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (to("a", 3, [[]]), E.INVALID_REPLICA_ASSIGNMENT, "empty"),
    ],
)
def test_not_growing(wanted: CreatePartitionsTopic, code: ErrorCode, why: str) -> None:
    results, records = grow(GROWABLE, wanted, to("b", 2))
    assert [each.error_code for each in results] == [code, 0]  # type: ignore[attr-defined]
    assert why in results[0].error_message  # type: ignore[attr-defined]
    assert len(records) == 1


def test_growing_twice_in_one_request_and_trying_out() -> None:
    results, records = grow(GROWABLE, to("a", 3), to("a", 4))
    assert [(each.name, each.error_code) for each in results] == [("a", E.INVALID_REQUEST)]  # type: ignore[attr-defined]
    assert records == []
    results, records = grow(GROWABLE, to("a", 3), validate_only=True)
    assert ([each.error_code for each in results], records) == ([0], [])  # type: ignore[attr-defined]


# --- delete


def delete(
    image: MetadataImage, *states: DeleteTopicState, enabled: bool = True
) -> tuple[list[tuple[str | None, int]], list[bytes]]:
    decision = decide_delete_topics(image, DeleteTopicsRequest(topics=list(states)), defaults(delete_enabled=enabled))
    for record in decision.records:
        assert isinstance(record, RemoveTopicRecord)
    answers = [(result.name, result.error_code) for result in decision.response.responses]
    return answers, [record.topic_id for record in decision.records]  # type: ignore[attr-defined]


A_ID = GROWABLE.topics["a"].id


def test_deleting_by_name_and_by_id() -> None:
    assert delete(GROWABLE, DeleteTopicState("a")) == ([("a", 0)], [A_ID])
    assert delete(GROWABLE, DeleteTopicState(None, A_ID)) == ([("a", 0)], [A_ID])
    old_way = decide_delete_topics(GROWABLE, DeleteTopicsRequest(topic_names=["b", "a"]), defaults())
    assert [each.error_code for each in old_way.response.responses] == [0, 0]
    assert not applied(GROWABLE, old_way.records).topics


def test_what_cannot_be_deleted() -> None:
    answers, records = delete(
        GROWABLE,
        DeleteTopicState("nowhere"),
        DeleteTopicState(None, b"?" * 16),
        DeleteTopicState("a", A_ID),
        DeleteTopicState(None, ZERO_UUID),
        DeleteTopicState("b"),
    )
    assert [code for _, code in answers] == [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_ID,
        E.INVALID_REQUEST,
        E.INVALID_REQUEST,
        0,
    ]
    assert records == [GROWABLE.topics["b"].id]


def test_the_same_topic_twice() -> None:
    answers, records = delete(GROWABLE, DeleteTopicState("a"), DeleteTopicState("a"))
    assert {code for _, code in answers} == {E.INVALID_REQUEST}
    assert records == []
    _, records = delete(GROWABLE, DeleteTopicState("a"), DeleteTopicState(None, A_ID))
    assert len(records) <= 1, "by name and by id: removing it twice would break the log"


def test_deleting_may_be_forbidden() -> None:
    assert delete(GROWABLE, DeleteTopicState("a"), enabled=False) == ([("a", E.TOPIC_DELETION_DISABLED)], [])


# --- names on a file system that ignores case


@pytest.mark.parametrize("there", [True, False], ids=["made before", "made by the same request"])
def test_names_that_differ_only_in_case_collide_where_files_do(there: bool) -> None:
    image = with_topics(THREE, topic("Orders")) if there else THREE
    wanted = [topic("orders")] if there else [topic("Orders"), topic("orders")]
    caseless = replace(defaults(), ignores_case=True)
    decision = decide_create_topics(image, CreateTopicsRequest(topics=wanted), caseless, Random(1))
    refused = decision.response.topics[-1]
    assert refused.error_code == E.INVALID_TOPIC_EXCEPTION
    assert refused.error_message == (
        "Topic 'orders' collides with existing topic: Orders; the controller's file system ignores case."
    )
    assert "orders" not in [each.name for each in decision.records if isinstance(each, TopicRecord)]


def test_names_that_differ_only_in_case_are_two_elsewhere() -> None:
    decision = create(THREE, topic("Orders"), topic("orders"))
    assert [each.error_code for each in decision.response.topics] == [0, 0]
