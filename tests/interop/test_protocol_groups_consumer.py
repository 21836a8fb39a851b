"""ConsumerGroupHeartbeat and related requests: groups of the consumer protocol, with one or a few members.

A broker may take a moment to assign again, so members send heartbeats until they own what they should; epochs are
compared with each other and never with a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from group_members import ConsumerMember, Group, join_alone, owned_topics, settle, spread, until
from kio.schema.errors import ErrorCode
from protocol_requests import by_name, topic_id
from wire_client import message

CreateTopic = Callable[..., str]
INVALID = ErrorCode.invalid_request
UNKNOWN = ErrorCode.unknown_member_id
FENCED = ErrorCode.fenced_member_epoch
STALE = ErrorCode.stale_member_epoch


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        made.assign_at_once()
        yield made


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic(partitions=4)


@pytest.fixture
def two_members(group: Group, name: str) -> tuple[ConsumerMember, ConsumerMember]:
    """Two members that own two partitions each."""
    first, second = group.consumer([name]), group.consumer([name])
    first.join()
    second.join()
    settle(lambda: spread((first, second)) == [2, 2] and first.epoch == second.epoch, first, second)
    return first, second


# ---- joining and leaving


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_with_its_first_heartbeat(group: Group, name: str, version: int) -> None:
    member = group.consumer([name], version=version)
    given = member.id
    answer = member.join()
    assert (answer.member_epoch > 0, answer.heartbeat_interval.total_seconds()) == (True, 5)
    assert (answer.member_id == given) == (version >= 1), "the broker gives the id in version 0 only"
    assert answer.member_id != ""
    assert answer.assignment is not None


def test_the_first_heartbeat_of_a_group_returns_all_partitions(bootstrap: str, name: str) -> None:
    """That holds once the coordinator knows the topic, hence the attempts, each in a new group."""

    def first_assignment() -> list[set[int]]:
        with Group(bootstrap) as fresh:
            given = fresh.consumer([name]).join().assignment
            return [set(shown.partitions) for shown in given.topic_partitions]

    assert until(first_assignment, "the topic is known") == [{0, 1, 2, 3}]


def test_a_heartbeat_without_changes_returns_no_assignment(group: Group, name: str) -> None:
    member = group.consumer([name])
    epoch = join_alone(member, 4)
    for answer in (member.heartbeat(), member.ask()):
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, epoch, None)
    again = member.ask(**member.full(topic_partitions=owned_topics(member.owned)))
    assert [set(shown.partitions) for shown in again.assignment.topic_partitions] == [{0, 1, 2, 3}]


@pytest.mark.parametrize(
    "change",
    [
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"group_id": ""},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
)
def test_invalid_first_heartbeats_are_refused(group: Group, name: str, change: dict[str, Any]) -> None:
    member = group.consumer([name])
    assert member.code(**member.full(**change)) == INVALID
    assert group.described_consumers().error_code == ErrorCode.group_id_not_found


def test_joining_with_owned_partitions_is_refused(group: Group, name: str) -> None:
    member = group.consumer([name])
    owned = owned_topics({topic_id(group.wire, name): {0}})
    assert member.code(**member.full(topic_partitions=owned)) == INVALID


def test_later_heartbeats_need_a_member_id(group: Group, name: str) -> None:
    member = group.consumer([name], version=0)
    member.join()
    assert member.code(member_id="") == INVALID
    assert member.code(member_id="", member_epoch=-1) == INVALID


def test_heartbeats_of_unknown_groups_and_members_are_refused(group: Group, name: str) -> None:
    member = group.consumer([name])
    assert member.code(member_epoch=1) == ErrorCode.group_id_not_found
    assert member.code(member_epoch=-1) == ErrorCode.group_id_not_found
    member.join()
    assert member.code(member_id="made-up") == UNKNOWN
    assert member.code(member_id="made-up", member_epoch=-1) == UNKNOWN
    assert member.code(instance_id="nobody") == UNKNOWN


def test_a_member_that_left_is_unknown(group: Group, name: str) -> None:
    member = group.consumer([name])
    member.join()
    answer = member.leave()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, member.id, -1)
    assert answer.assignment is None
    assert member.code() == UNKNOWN
    assert member.leave().error_code == UNKNOWN
    assert group.described_consumers().group_state == "Empty"


def test_a_member_may_join_again_at_any_time(group: Group, name: str) -> None:
    member = group.consumer([name])
    epoch = join_alone(member, 4)
    again = member.join()
    assert (again.member_epoch >= epoch, member.partitions()) == (True, {0, 1, 2, 3})


# ---- subscriptions


def test_a_member_may_subscribe_to_nothing(group: Group) -> None:
    member = group.consumer([])
    answer = member.join()
    assert (answer.error_code, answer.assignment.topic_partitions) == (0, ())


def test_a_topic_created_later_is_assigned(group: Group, topic: Callable[[], str], create_topic: CreateTopic) -> None:
    later = topic()
    member = group.consumer([later])
    member.join()
    assert member.owned == {}
    create_topic(partitions=2, name=later)
    settle(lambda: member.owned == {topic_id(group.wire, later): {0, 1}}, member)


def test_partitions_added_later_are_assigned(group: Group, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=1)
    member = group.consumer([name])
    join_alone(member, 1)
    more = [{"name": name, "count": 3, "assignments": None}]
    group.ask("create_partitions", 3, topics=more, timeout=10_000, validate_only=False)
    settle(lambda: member.partitions() == {0, 1, 2}, member)


def test_a_deleted_topic_is_removed_from_the_assignment(group: Group, name: str, create_topic: CreateTopic) -> None:
    doomed = create_topic()
    member = group.consumer([name, doomed])
    join_alone(member, 5)
    kept = topic_id(group.wire, name)
    assert member.owned.keys() == {kept, topic_id(group.wire, doomed)}
    group.wire.ask(message("delete_topics", 6, topics=[by_name(doomed)], timeout=10_000))
    settle(lambda: member.owned.keys() == {kept}, member)


def test_a_changed_subscription_changes_the_assignment(group: Group, name: str, create_topic: CreateTopic) -> None:
    other = create_topic(partitions=2)
    ids = {each: topic_id(group.wire, each) for each in (name, other)}
    member = group.consumer([name])
    join_alone(member, 4)
    epoch = member.heartbeat(subscribed_topic_names=[name, other]).member_epoch
    settle(lambda: member.owned == {ids[name]: {0, 1, 2, 3}, ids[other]: {0, 1}}, member)
    assert member.epoch >= epoch
    member.heartbeat(subscribed_topic_names=[other])
    settle(lambda: member.owned == {ids[other]: {0, 1}}, member)


def test_members_get_only_topics_they_subscribed_to(group: Group, name: str, create_topic: CreateTopic) -> None:
    other = create_topic(partitions=2)
    one, both = group.consumer([name]), group.consumer([name, other])
    one.join()
    both.join()
    settle(lambda: spread((one, both)) == [3, 3], one, both)
    assert one.owned.keys() == {topic_id(group.wire, name)}
    assert both.owned[topic_id(group.wire, other)] == {0, 1}


# ---- several members


def test_a_partition_is_assigned_only_after_its_owner_revoked_it(group: Group, name: str) -> None:
    first, second = group.consumer([name]), group.consumer([name])
    before = join_alone(first, 4)
    second.join()
    assert second.owned == {}
    held = owned_topics(first.owned)
    until(lambda: first.heartbeat(topic_partitions=held).assignment, "the first member is asked to revoke partitions")
    kept = first.partitions()
    assert (len(kept), first.epoch) == (2, before), "a member that must revoke partitions stays in its epoch"
    for _ in range(3):
        assert first.heartbeat(topic_partitions=held).member_epoch == before
        assert first.ask().member_epoch == before, "a heartbeat without owned partitions acknowledges nothing"
        second.heartbeat()
        assert second.owned == {}
    assert first.heartbeat().member_epoch > before
    settle(lambda: second.partitions() == {0, 1, 2, 3} - kept, second)
    assert first.epoch == second.epoch


def test_partitions_of_a_member_that_left_are_reassigned(two_members: tuple[ConsumerMember, ConsumerMember]) -> None:
    first, second = two_members
    epoch = first.epoch
    assert second.leave().error_code == 0
    settle(lambda: first.partitions() == {0, 1, 2, 3}, first)
    assert first.epoch > epoch


def test_a_member_that_does_not_revoke_in_time_is_removed(group: Group, name: str) -> None:
    first, second = group.consumer([name]), group.consumer([name])
    join_alone(first, 4)
    first.heartbeat(rebalance_timeout=300)
    second.join()
    held = owned_topics(first.owned)
    until(lambda: first.ask(topic_partitions=held).error_code == UNKNOWN, "the first member is removed")
    settle(lambda: second.partitions() == {0, 1, 2, 3}, second)


def test_an_idle_member_takes_over_partitions(group: Group, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    members = [group.consumer([name]) for _ in range(3)]
    for member in members:
        member.join()
    settle(lambda: spread(members) == [1, 1, 0] and len({member.epoch for member in members}) == 1, *members)
    idle = next(member for member in members if not member.owned)
    leaving = next(member for member in members if member.owned)
    assert leaving.leave().error_code == 0
    members.remove(leaving)
    settle(lambda: spread(members) == [1, 1] and idle.owned, *members)


# ---- epochs


def test_wrong_epochs_are_fenced(two_members: tuple[ConsumerMember, ConsumerMember]) -> None:
    first, second = two_members
    assert first.code(member_epoch=first.epoch + 1) == FENCED
    assert second.code(member_epoch=second.epoch + 7) == FENCED
    assert (first.code(), second.code()) == (0, 0), "the correct epoch is still accepted"


def test_the_previous_epoch_is_accepted_after_a_lost_response(group: Group, name: str) -> None:
    """But only from a member that owns no more than it was assigned."""
    member = group.consumer([name])
    before, owned = join_alone(member, 4), owned_topics(member.owned)
    other = group.consumer([name])
    other.join()
    settle(lambda: member.epoch > before and len(member.partitions()) == 2, member)
    assert member.code(member_epoch=before, topic_partitions=owned_topics(member.owned)) == 0
    assert member.code(member_epoch=before, topic_partitions=owned) == FENCED
    assert member.code(member_epoch=before) == FENCED
    assert member.code() == 0


def test_commits_with_a_stale_epoch_are_refused(two_members: tuple[ConsumerMember, ConsumerMember], name: str) -> None:
    first, second = two_members
    partition, foreign = min(first.partitions()), min(second.partitions())
    assert first.commit(name, 5, partition=partition) == 0
    assert first.commit(name, 6, partition=foreign) == 0, "the epoch is checked, not who owns the partition"
    assert first.commit(name, 7, partition=partition, epoch=first.epoch + 1) == STALE
    assert first.commit(name, 8, partition=foreign, epoch=first.epoch - 1) == STALE
    assert first.commit(name, 9, partition=partition, member_id="made-up") == UNKNOWN
    assert first.group.commit(name, 10, partition=partition) == UNKNOWN, (
        "a commit without a member id, in a group with members"
    )
    assert (first.group.committed(name, partition), first.group.committed(name, foreign)) == (5, 6)
    assert first.commit(name, 11, version=8) == ErrorCode.unsupported_version


def test_a_kept_partition_can_be_committed_with_the_epoch_of_its_assignment(group: Group, name: str) -> None:
    first, second = group.consumer([name]), group.consumer([name])
    before = join_alone(first, 4)
    second.join()
    settle(lambda: spread((first, second)) == [2, 2] and first.epoch == second.epoch, first, second)
    kept, lost = min(first.partitions()), min(second.partitions())
    assert first.epoch > before
    assert first.commit(name, 5, partition=kept, epoch=before) == 0
    assert first.commit(name, 6, partition=lost, epoch=before) == STALE
    assert first.commit(topic_id(group.wire, name), 7, partition=kept, epoch=before, version=10) == 0


def test_a_former_member_cannot_commit(group: Group, name: str) -> None:
    member = group.consumer([name])
    member.join()
    assert [member.commit(name, 5), member.leave().error_code] == [0, 0]
    assert member.commit(name, 6) == UNKNOWN
    assert group.commit(name, 7) == 0, "an outsider may, in an empty group"


# ---- assignors


def test_an_unknown_assignor_is_refused(group: Group, name: str) -> None:
    member = group.consumer([name], server_assignor="sticky")
    assert member.code(**member.full()) == ErrorCode.unsupported_assignor


@pytest.mark.parametrize(("assignor", "shares"), [("range", [4, 2]), ("uniform", [3, 3]), (None, [3, 3])])
def test_each_assignor_distributes_partitions_in_its_way(
    group: Group, create_topic: CreateTopic, assignor: str | None, shares: list[int]
) -> None:
    """Range gives the first member the larger part of every topic; uniform, the default, balances over all topics."""
    topics = [create_topic(partitions=3), create_topic(partitions=3)]
    members = [group.consumer(topics, server_assignor=assignor) for _ in range(2)]
    for member in members:
        member.join()
    settle(lambda: spread(members) == shares, *members)
    assert group.described_consumers().assignor_name == (assignor or "uniform")
    if assignor == "range":
        for member in members:
            assert len({frozenset(partitions) for partitions in member.owned.values()}) == 1


def test_the_majority_of_members_chooses_the_assignor(group: Group, create_topic: CreateTopic) -> None:
    topics = [create_topic(partitions=2), create_topic(partitions=2), create_topic(partitions=2)]
    wishes = ["uniform", "range", "range"]
    members = [group.consumer(topics, server_assignor=wish) for wish in wishes]
    for member in members:
        member.join()
    settle(lambda: spread(members) == [3, 3, 0], *members)
    assert group.described_consumers().assignor_name == "range"
