"""ConsumerGroupDescribe: descriptions of consumer groups, and errors for all other groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from group_members import Group, join_alone, owned_topics, settle, spread
from kio.schema.errors import ErrorCode
from protocol_requests import topic_id

CreateTopic = Callable[..., str]
NO_OPERATIONS_REQUESTED = -(2**31)
CONSUMER = 1
"""The member type of a consumer; a classic member has 0."""


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        made.assign_at_once()
        yield made


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic(partitions=4)


def partitions(assignment: Any) -> dict[str, set[int]]:
    return {shown.topic_name: set(shown.partitions) for shown in assignment.topic_partitions}


@pytest.mark.parametrize("version", [0, 1])
def test_a_stable_group_is_described(group: Group, name: str, version: int) -> None:
    member = group.consumer([name], instance="one", rack_id="here")
    join_alone(member, 4)
    shown = group.described_consumers(version)
    assert (shown.error_code, shown.group_state, shown.assignor_name) == (0, "Stable", "uniform")
    assert shown.group_epoch == shown.assignment_epoch == member.epoch
    assert shown.authorized_operations == NO_OPERATIONS_REQUESTED
    (described,) = shown.members
    assert (described.member_id, described.instance_id, described.rack_id) == (member.id, "one", "here")
    assert (described.member_epoch, described.client_id, described.client_host) == (
        member.epoch,
        "interop",
        "/127.0.0.1",
    )
    assert (described.subscribed_topic_names, described.subscribed_topic_regex) == ((name,), "")
    assert partitions(described.assignment) == partitions(described.target_assignment) == {name: {0, 1, 2, 3}}
    assert described.assignment.topic_partitions[0].topic_id == topic_id(group.wire, name)
    if version >= 1:
        assert described.member_type == CONSUMER


def test_a_reconciling_group_is_described(group: Group, name: str) -> None:
    first, second = group.consumer([name]), group.consumer([name])
    join_alone(first, 4)
    second.join()
    held = owned_topics(first.owned)  # it still names all four, so that the second member has to wait for its two
    settle(lambda: not first.heartbeat(topic_partitions=held).error_code and len(first.partitions()) == 2)
    shown = group.described_consumers()
    assert shown.group_state == "Reconciling"
    described = {member.member_id: member for member in shown.members}
    assert len(partitions(described[first.id].target_assignment)[name]) == 2
    assert len(partitions(described[second.id].target_assignment)[name]) == 2
    assert partitions(described[second.id].assignment) == {}
    settle(lambda: spread((first, second)) == [2, 2], first, second)
    assert group.described_consumers().group_state == "Stable"


def test_an_emptied_group_is_described(group: Group, name: str) -> None:
    member = group.consumer([name])
    epoch = join_alone(member, 4)
    member.leave()
    shown = group.described_consumers()
    assert (shown.error_code, shown.group_state, shown.members) == (0, "Empty", ())
    assert shown.group_epoch > epoch


def test_classic_unknown_and_unnamed_groups_are_refused(group: Group, name: str) -> None:
    missing = f"{group.id}-none"
    group.join_members()
    requested = {"group_ids": [group.id, missing, ""], "include_authorized_operations": False}
    answer = group.ask("consumer_group_describe", 1, **requested)
    found = {shown.group_id: int(shown.error_code) for shown in answer.groups}
    not_found, invalid = ErrorCode.group_id_not_found, ErrorCode.invalid_group_id
    assert found == {group.id: not_found, missing: not_found, "": invalid}


def test_a_consumer_group_is_not_described_as_a_classic_one(group: Group, name: str) -> None:
    join_alone(group.consumer([name]), 4)
    shown = group.describe(6)
    assert (shown.error_code, shown.group_state) == (ErrorCode.group_id_not_found, "Dead")
    old = group.describe(5)
    assert (old.error_code, old.group_state, old.members) == (0, "Dead", ())


def test_a_consumer_group_is_listed_with_state_and_type(group: Group, name: str) -> None:
    join_alone(group.consumer([name]), 4)
    shown = group.listed()
    assert shown is not None
    assert (shown.protocol_type, shown.group_state, shown.group_type) == ("consumer", "Stable", "consumer")
    assert group.listed(states_filter=["stable"], types_filter=["Consumer"]) is not None
    assert group.listed(states_filter=["reconciling", "assigning", "empty"]) is None
