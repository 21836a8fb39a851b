"""`ShareGroups`: temporary errors are tried again, errors of groups, partitions and topics are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from stand_in_brokers import BOOTSTRAP, FakeBrokers

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import DescribedGroup, Member, Node, ShareOffset
from moldau.client.admin.share_groups import ShareGroups
from moldau.client.cluster import Cluster
from moldau.wire.apis import ApiKey
from moldau.wire.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
)

TIMEOUT_MS = 60_000
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
PARTITION = TopicPartition("orders", 1)


@pytest.fixture
def groups(brokers: FakeBrokers) -> Iterator[ShareGroups]:
    cluster = Cluster(BOOTSTRAP, {})
    yield ShareGroups(cluster, TIMEOUT_MS)
    cluster.close()


def group(name: str) -> share_group_describe.DescribedGroup:
    if name == "gone":
        return share_group_describe.DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "Group gone not found.", name)
    topics = [share_group_describe.TopicPartitions(topic_name="orders", partitions=[0, 1])]
    member = share_group_describe.Member(
        "m-1", None, 3, "app", "/10.0.0.7", ["orders"], share_group_describe.Assignment(topics)
    )
    return share_group_describe.DescribedGroup(0, None, name, "Stable", 4, 3, "simple", [member])


def test_a_description_has_members_with_their_partitions(brokers: FakeBrokers, groups: ShareGroups) -> None:
    brokers.coordinator = 2
    brokers.handlers[ApiKey.SHARE_GROUP_DESCRIBE] = lambda _, request: share_group_describe.ShareGroupDescribeResponse(
        groups=[group(name) for name in request.group_ids]
    )
    described = groups.described(["workers", "gone"])
    assignment = frozenset({TopicPartition("orders", 0), PARTITION})
    member = Member("m-1", None, "app", "/10.0.0.7", assignment, epoch=3)
    coordinator = Node(2, "host", 2)
    assert described["workers"] == DescribedGroup(
        "workers", "Share", "share", "Stable", "simple", coordinator, (member,), 4, 3
    )
    gone = described["gone"]
    assert isinstance(gone, KafkaError)
    assert (gone.code, str(gone)) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group gone not found.")


def offsets_response(codes: dict[str, ErrorCode], request: Any) -> Any:
    messages = describe_share_group_offsets
    partition = messages.DescribeShareGroupOffsetsResponsePartition
    partitions = [
        partition(0, 5, 2, 7),
        partition(1, -1, -1, -1),
        partition(2, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="no state"),
        partition(3, 9, -1, -1),
    ]
    topics = [messages.DescribeShareGroupOffsetsResponseTopic("orders", partitions=partitions)]
    response = messages.DescribeShareGroupOffsetsResponse(
        groups=[
            messages.DescribeShareGroupOffsetsResponseGroup(each.group_id, topics, codes.get(each.group_id, 0), "why")
            for each in request.groups
        ]
    )
    codes.pop("loading", None)
    return response


def test_offsets_are_asked_again_only_of_groups_that_load(brokers: FakeBrokers, groups: ShareGroups) -> None:
    codes = {"loading": LOADING, "secret": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    brokers.handlers[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS] = lambda _, request: offsets_response(codes, request)
    offsets = groups.each_offsets(["fine", "loading", "secret"])
    asked = brokers.requests(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    assert [[each.group_id for each in request.groups] for request in asked] == [
        ["fine", "loading", "secret"],
        ["loading"],
    ]
    assert all(each.topics is None for request in asked for each in request.groups)
    secret, fine = offsets["secret"], offsets["fine"]
    assert isinstance(secret, KafkaError)
    assert str(secret) == "why"
    assert not isinstance(fine, KafkaError)
    assert fine[TopicPartition("orders", 0)] == ShareOffset(5, 2, 7)
    assert fine[PARTITION] is None
    assert str(fine[TopicPartition("orders", 2)]) == "no state"
    assert fine[TopicPartition("orders", 3)] == ShareOffset(9, None, None)
    with pytest.raises(KafkaError, match="why"):
        groups.offsets("secret")


def test_altering_raises_the_error_of_the_group(brokers: FakeBrokers, groups: ShareGroups) -> None:
    messages = alter_share_group_offsets
    codes = [LOADING, ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP]
    partitions = [
        messages.AlterShareGroupOffsetsResponsePartition(1),
        messages.AlterShareGroupOffsetsResponsePartition(2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"),
    ]
    topics = [messages.AlterShareGroupOffsetsResponseTopic("orders", partitions=partitions)]
    brokers.handlers[ApiKey.ALTER_SHARE_GROUP_OFFSETS] = lambda *_: messages.AlterShareGroupOffsetsResponse(
        0, codes.pop(0), "why", topics
    )
    errors = groups.alter_offsets("workers", {PARTITION: 4, TopicPartition("orders", 2): 0})
    assert errors[PARTITION] is None
    assert str(errors[TopicPartition("orders", 2)]) == "no such partition"
    with pytest.raises(KafkaError, match="why") as raised:
        groups.alter_offsets("workers", {PARTITION: 4})
    assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
    assert codes == []
    (request,) = brokers.requests(ApiKey.ALTER_SHARE_GROUP_OFFSETS)[-1:]
    assert (request.group_id, request.topics[0].partitions[0].start_offset) == ("workers", 4)


def test_deleting_offsets_returns_the_error_of_each_topic(brokers: FakeBrokers, groups: ShareGroups) -> None:
    messages = delete_share_group_offsets
    codes = [LOADING, ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP]
    topics = [
        messages.DeleteShareGroupOffsetsResponseTopic("orders"),
        messages.DeleteShareGroupOffsetsResponseTopic("gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    brokers.handlers[ApiKey.DELETE_SHARE_GROUP_OFFSETS] = lambda *_: messages.DeleteShareGroupOffsetsResponse(
        0, codes.pop(0), None, topics
    )
    errors = groups.delete_offsets("workers", ["orders", "gone"])
    assert errors["orders"] is None
    gone = errors["gone"]
    assert gone is not None
    assert gone.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as raised:
        groups.delete_offsets("workers", ["orders"])
    assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
