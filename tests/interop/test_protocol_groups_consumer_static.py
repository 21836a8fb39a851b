"""Static members of the consumer protocol: leaving temporarily, returning, and being replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from group_members import ConsumerMember, Group, join_alone, owned_topics, settle, spread
from kio.schema.errors import ErrorCode

CreateTopic = Callable[..., str]
LEAVE, LEAVE_TEMPORARILY = -1, -2
UNKNOWN = ErrorCode.unknown_member_id
FENCED = ErrorCode.fenced_instance_id


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
    """Static members `first` and `second` that own two partitions each."""
    members = [group.consumer([name], instance=instance) for instance in ("first", "second")]
    for member in members:
        member.join()
    settle(lambda: spread(members) == [2, 2] and members[0].epoch == members[1].epoch, *members)
    return members[0], members[1]


def restarted(member: ConsumerMember, name: str) -> ConsumerMember:
    return member.group.consumer([name], instance=member.instance)


def test_a_static_member_that_returns_gets_its_partitions_back(
    two_members: tuple[ConsumerMember, ConsumerMember], name: str
) -> None:
    first, second = two_members
    answer = second.leave(LEAVE_TEMPORARILY)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, second.id, -2)
    for _ in range(3):
        assert (first.heartbeat().assignment, len(first.partitions())) == (None, 2)
    again = restarted(second, name)
    again.join()
    assert (again.id != second.id, again.owned, again.epoch) == (True, second.owned, second.epoch)
    first.heartbeat()
    assert (first.epoch, len(first.partitions())) == (second.epoch, 2), "the other member is not affected"


def test_an_instance_id_in_use_is_refused(two_members: tuple[ConsumerMember, ConsumerMember], name: str) -> None:
    _, second = two_members
    intruder = restarted(second, name)
    assert intruder.code(**intruder.full()) == ErrorCode.unreleased_instance_id
    assert second.code() == 0


def test_a_replaced_static_member_is_fenced(two_members: tuple[ConsumerMember, ConsumerMember], name: str) -> None:
    _, old = two_members
    assert old.leave(LEAVE_TEMPORARILY).error_code == 0
    restarted(old, name).join()
    assert old.code() == FENCED
    assert old.code(member_epoch=LEAVE) == FENCED
    assert old.code(member_epoch=LEAVE_TEMPORARILY) == FENCED
    assert old.code(instance_id=None) == UNKNOWN
    assert old.commit(name, 5) == UNKNOWN


def test_a_temporarily_absent_static_member_is_fenced(
    two_members: tuple[ConsumerMember, ConsumerMember], name: str
) -> None:
    _, second = two_members
    assert second.leave(LEAVE_TEMPORARILY).error_code == 0
    assert second.code() == ErrorCode.fenced_member_epoch
    assert second.commit(name, 5) == ErrorCode.stale_member_epoch


def test_partitions_of_a_static_member_that_left_are_reassigned(
    two_members: tuple[ConsumerMember, ConsumerMember],
) -> None:
    first, second = two_members
    assert second.leave(LEAVE).error_code == 0
    settle(lambda: first.partitions() == {0, 1, 2, 3}, first)
    assert second.code() == UNKNOWN


def test_an_unknown_instance_id_is_refused(group: Group, name: str) -> None:
    member = group.consumer([name])
    join_alone(member, 4)
    assert member.code(instance_id="nobody") == UNKNOWN
    assert member.code(instance_id="nobody", member_epoch=LEAVE_TEMPORARILY) == UNKNOWN


def test_a_restart_with_another_subscription_gets_a_new_assignment(
    two_members: tuple[ConsumerMember, ConsumerMember], create_topic: CreateTopic
) -> None:
    first, second = two_members
    other = create_topic(partitions=2)
    assert second.leave(LEAVE_TEMPORARILY).error_code == 0
    again = restarted(second, other)
    again.join()
    settle(lambda: first.partitions() == {0, 1, 2, 3} and again.partitions() == {0, 1}, first, again)


def test_a_static_member_may_rejoin_with_its_own_member_id(group: Group, name: str) -> None:
    member = group.consumer([name], instance="one")
    join_alone(member, 4)
    assert member.code(topic_partitions=owned_topics(member.owned)) == 0
    assert member.leave(LEAVE_TEMPORARILY).error_code == 0
    member.join()
    assert member.partitions() == {0, 1, 2, 3}
