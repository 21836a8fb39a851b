"""Views in the metadata: a view has no partitions of its own, and follows those of its source."""

from __future__ import annotations

from random import Random

import pytest
from clusters import applied, cluster, create, layers, restore, topic, topic_rules, with_topics
from harness.operations import operations_of

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import finish
from moldau.metadata.apply import apply
from moldau.metadata.controller.elections import decide_balance, decide_elect_leaders
from moldau.metadata.controller.leaderships import leave_changes
from moldau.metadata.controller.topics import decide_create_partitions, decide_create_topics, decide_delete_topics
from moldau.metadata.controller.views import VIEWS_MAX, refuse_view_configs
from moldau.metadata.image import MetadataImage
from moldau.metadata.snapshot import changes_between
from moldau.wire.log_records.metadata import PartitionChangeRecord, PartitionRecord
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.elect_leaders import ElectLeadersRequest

FROM, WHERE, MADE_BY = "moldau.view.from", "moldau.view.where", "moldau.view.made.by"


def view(name: str, source: str, **others: str) -> CreatableTopic:
    return topic(name, -1, -1, configs={FROM: source, **{"moldau.view." + key: text for key, text in others.items()}})


def with_view() -> MetadataImage:
    image = with_topics(cluster([1, 2, 3]), topic("orders", 2, 3))
    return with_topics(image, view("big", "orders", where="amount > 100"))


def removed(image: MetadataImage, name: str) -> MetadataImage:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name)])
    return applied(image, finish(decide_delete_topics(image, request, topic_rules())).records)


def test_a_view_has_the_partitions_of_its_source_and_no_records_of_them() -> None:
    image = with_view()
    assert image.topics["big"].partitions == image.topics["orders"].partitions
    assert image.topics["big"].source_id == image.topics["orders"].id
    decision = create(image, view("other", "orders"))
    assert not any(isinstance(record, PartitionRecord) for record in decision.records)
    assert decision.response.topics[0].num_partitions == 2


def test_a_snapshot_restores_views() -> None:
    image = with_view()
    restored = restore(image)
    assert restored == image
    assert changes_between(MetadataImage(), restored).topics["big"] == {0, 1}


def test_a_view_follows_the_leader_of_its_source() -> None:
    image = with_view()
    leader = image.topics["orders"].partitions[0].leader
    records = leave_changes(image, [leader], layers(image))
    assert {record.topic_id for record in records} == {image.topics["orders"].id}, "nothing is decided for the view"
    after, changes = apply(image, records, image.offset + 1, 2)
    assert after.topics["big"].partitions == after.topics["orders"].partitions
    assert after.topics["big"].partitions[0].leader != leader
    assert changes.topics["big"] == changes.topics["orders"]
    assert all(record.topic_id == image.topics["orders"].id for record in finish(decide_balance(after)).records)
    elected = finish(decide_elect_leaders(after, ElectLeadersRequest(0, None, 1000)))
    assert "big" not in {each.topic for each in elected.response.replica_election_results}


def test_the_partitions_of_a_source_are_compared_once_for_all_its_views() -> None:
    image = with_topics(cluster([1, 2, 3]), topic("orders", 500, 3))
    image = with_topics(image, *(view(f"v{number}", "orders") for number in range(50)))
    shrunk = [PartitionChangeRecord(7, image.topics["orders"].id, isr=[1])]
    _, changes = apply(image, shrunk, image.offset + 1, 2)
    assert [changes.topics[name] for name in image.views] == [{7}] * 50
    assert operations_of(lambda: apply(image, shrunk, image.offset + 1, 2)) < 5_000


def test_partitions_can_be_added_only_to_the_source() -> None:
    image = with_view()
    request = CreatePartitionsRequest([CreatePartitionsTopic("orders", 3, None), CreatePartitionsTopic("big", 3, None)])
    decision = finish(decide_create_partitions(image, request, Random(1)))
    assert [each.error_code for each in decision.response.results] == [0, ErrorCode.POLICY_VIOLATION]
    assert len(applied(image, decision.records).topics["big"].partitions) == 3


def test_a_view_of_a_deleted_topic_has_no_partitions_even_if_the_topic_is_recreated() -> None:
    image = removed(with_view(), "orders")
    assert image.topics["big"].partitions == ()
    request = CreateTopicsRequest([topic("orders", 2, 3)])
    again = applied(image, finish(decide_create_topics(image, request, topic_rules(), Random(99))).records)
    assert len(again.topics["orders"].partitions) == 2
    assert again.topics["big"].partitions == ()
    assert "big" not in removed(again, "big").views


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (view("v", "nothing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (view("v", "big"), ErrorCode.INVALID_CONFIG),
        (view("v", "v"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (view("v", "orders", where="amount >"), ErrorCode.INVALID_CONFIG),
        (view("v", "orders", nonsense="1"), ErrorCode.INVALID_CONFIG),
        (topic("v", -1, -1, configs={FROM: "orders", MADE_BY: "x" * 201}), ErrorCode.INVALID_CONFIG),
        (topic("v", -1, -1, configs={FROM: "orders", MADE_BY: "\x1b[2J"}), ErrorCode.INVALID_CONFIG),
        (topic("v", -1, -1, configs={WHERE: "a = 1"}), ErrorCode.INVALID_CONFIG),
        (topic("v", 3, -1, configs={FROM: "orders"}), ErrorCode.INVALID_PARTITIONS),
        (topic("v", -1, 1, configs={FROM: "orders"}), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("v", -1, -1, configs={FROM: "orders", "retention.ms": "5"}), ErrorCode.INVALID_CONFIG),
        (view("orders", "orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_invalid_views_are_refused(wrong: CreatableTopic, code: ErrorCode) -> None:
    decision = create(with_view(), wrong)
    result = decision.response.topics[0]
    assert (result.error_code, decision.records) == (code, ())
    assert result.error_message
    assert result.error_message.endswith(".")


def test_the_number_of_views_is_limited() -> None:
    image = with_topics(cluster([1]), topic("orders", 1, 1))
    image = with_topics(image, *(view(f"v{number}", "orders") for number in range(VIEWS_MAX)))
    assert create(image, view("more", "orders")).response.topics[0].error_code == ErrorCode.POLICY_VIOLATION


def test_the_views_of_one_request_are_counted() -> None:
    image = with_topics(cluster([1]), topic("orders", 1, 1))
    image = with_topics(image, *(view(f"v{number}", "orders") for number in range(VIEWS_MAX - 2)))
    results = create(image, *(view(name, "orders") for name in "abcd")).response.topics
    assert [each.error_code for each in results] == [0, 0, *[ErrorCode.POLICY_VIOLATION] * 2]


def test_the_definitions_of_one_request_are_limited() -> None:
    image = with_topics(cluster([1]), topic("orders", 1, 1))
    long = "a = '" + "x" * 8000 + "'"
    results = create(image, *(view(f"v{number}", "orders", where=long) for number in range(30))).response.topics
    assert [each.error_code for each in results] == [*[0] * 24, *[ErrorCode.POLICY_VIOLATION] * 6]


def test_views_do_not_count_towards_the_partition_limit_of_a_request() -> None:
    image = with_topics(cluster([1]), topic("orders", 1000, 1))
    topics = [*(view(f"v{number}", "orders") for number in range(10)), topic("other", 1000, 1)]
    charged: list[int] = []
    decision = finish(
        decide_create_topics(image, CreateTopicsRequest(topics), topic_rules(), Random(1), charged.append)
    )
    assert {each.error_code for each in decision.response.topics} == {0}
    assert charged == [*[1] * 10, 1000]


def test_a_view_counts_as_one_partition_for_the_quota_also_when_it_is_deleted() -> None:
    image, charged = with_view(), list[int]()
    create_both = CreateTopicsRequest(topics=[view("other", "orders"), topic("more", 2, 1)])
    finish(decide_create_topics(image, create_both, topic_rules(), Random(1), charged.append))
    delete_both = DeleteTopicsRequest(topics=[DeleteTopicState("big"), DeleteTopicState("orders")])
    finish(decide_delete_topics(image, delete_both, topic_rules(), charged.append))
    assert charged == [1, 2, 1, 2]


def test_changes_of_view_configs_are_refused() -> None:
    image = with_view()
    for name, configs in (("big", {"retention.ms": "5"}), ("orders", {WHERE: "a = 1"})):
        with pytest.raises(KafkaError):
            refuse_view_configs(image, name, configs)
