"""Classic and consumer members in one group: it changes its protocol in either direction while its members read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from group_members import (
    ClassicMember,
    ConsumerMember,
    Group,
    assignment,
    join_alone,
    read_assignment,
    settle,
    subscription,
    until,
)
from kio.schema.errors import ErrorCode

CreateTopic = Callable[..., str]
CLASSIC, CONSUMER = 0, 1
REBALANCE = ErrorCode.rebalance_in_progress


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        made.assign_at_once()
        yield made


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic(partitions=4)


def classic_member(group: Group, name: str, **fields: str) -> ClassicMember:
    return group.member(protocols=[("range", subscription(name))], **fields)


def catch_up(member: ClassicMember) -> set[int]:
    """Join and sync until no rebalance is in progress, as a client does; return the assigned partitions."""

    def assigned() -> list[set[int]]:
        member.join()
        answer = member.sync()
        if answer.error_code == REBALANCE or member.heartbeat() == REBALANCE:
            return []
        assert answer.error_code == 0
        return [set().union(*read_assignment(answer.assignment).values())]

    found: list[set[int]] = until(assigned, "the classic member has caught up")
    return found[0]


@pytest.fixture
def mixed(group: Group, name: str) -> tuple[ClassicMember, ConsumerMember]:
    """A classic member that owned everything, and a consumer member that joined and got half of it."""
    old, new = classic_member(group, name), group.consumer([name])
    old.join()
    assert old.sync({old.id: assignment(name, 0, 1, 2, 3)}).error_code == 0
    new.join()
    until(lambda: old.heartbeat() == REBALANCE, "the classic member gets REBALANCE_IN_PROGRESS")
    until(lambda: len(catch_up(old)) == 2, "the classic member has revoked half")
    settle(lambda: len(new.partitions()) == 2, new)
    return old, new


# ---- empty groups are converted at once


def test_an_empty_classic_group_becomes_a_consumer_group(group: Group, name: str) -> None:
    (member,) = group.join_members(topic=name)
    assert [member.commit(name, 5), member.leave(), group.listed_type()] == [0, 0, "classic"]
    new = group.consumer([name])
    join_alone(new, 4)
    assert (group.listed_type(), group.committed(name)) == ("consumer", 5)


def test_a_group_that_only_commits_becomes_a_consumer_group(group: Group, name: str) -> None:
    assert group.commit(name, 5) == 0
    join_alone(group.consumer([name]), 4)
    assert (group.listed_type(), group.committed(name)) == ("consumer", 5)


def test_an_empty_consumer_group_becomes_a_classic_group(group: Group, name: str) -> None:
    new = group.consumer([name])
    join_alone(new, 4)
    assert [new.commit(name, 5), new.leave().error_code] == [0, 0]
    old = classic_member(group, name)
    assert old.join().leader == old.id
    assert (group.listed_type(), group.state(), group.committed(name)) == ("classic", "CompletingRebalance", 5)


def test_an_empty_classic_group_of_another_type_becomes_a_consumer_group(group: Group, name: str) -> None:
    member = group.member(protocols=[("compatible", b"")], protocol_type="connect")
    member.join()
    assert member.leave() == 0
    join_alone(group.consumer([name]), 4)
    assert group.listed_type() == "consumer"


# ---- a consumer member joins a classic group with members


def test_classic_and_consumer_members_share_the_partitions(mixed: tuple[ClassicMember, ConsumerMember]) -> None:
    old, new = mixed
    kept = catch_up(old)
    assert kept | new.partitions() == {0, 1, 2, 3}
    assert not kept & new.partitions()
    assert old.generation == new.epoch
    assert old.group.listed_type() == "consumer"
    member_types = {member.member_id: member.member_type for member in old.group.described_consumers().members}
    assert member_types == {old.id: CLASSIC, new.id: CONSUMER}


def test_a_partition_moves_only_after_the_classic_member_revoked_it(group: Group, name: str) -> None:
    """A classic member reports its owned partitions in JoinGroup, so it has to rejoin."""
    old, new = classic_member(group, name), group.consumer([name])
    old.join()
    assert old.sync({old.id: assignment(name, 0, 1, 2, 3)}).error_code == 0
    new.join()
    until(lambda: old.heartbeat() == REBALANCE, "the classic member gets REBALANCE_IN_PROGRESS")
    old.protocols = [("range", subscription(name, owned=[0, 1, 2, 3]))]
    old.join()
    kept = read_assignment(old.sync().assignment)[name]
    for _ in range(3):
        new.heartbeat()
        assert (len(kept), new.owned, old.heartbeat()) == (2, {}, REBALANCE)
    old.protocols = [("range", subscription(name, owned=sorted(kept)))]
    old.join()
    assert read_assignment(old.sync().assignment)[name] == kept
    settle(lambda: new.partitions() == {0, 1, 2, 3} - kept, new)
    assert old.heartbeat() == 0


def test_classic_members_of_a_consumer_group_get_an_id_first(
    mixed: tuple[ClassicMember, ConsumerMember], name: str
) -> None:
    group = mixed[0].group
    third = classic_member(group, name)
    first = third.ask_join()
    assert (first.error_code, first.member_id != "") == (ErrorCode.member_id_required, True)
    third.id = first.member_id
    answer = third.ask_join()
    assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (0, "consumer", "range")
    assert (answer.leader, answer.members, answer.skip_assignment) == ("", (), False), "the broker assigns"


def test_invalid_requests_of_classic_members_are_refused(
    mixed: tuple[ClassicMember, ConsumerMember], name: str
) -> None:
    old, new = mixed
    assert old.heartbeat(generation_id=old.generation + 1) == ErrorCode.illegal_generation
    assert old.heartbeat(member_id="made-up") == ErrorCode.unknown_member_id
    assert old.heartbeat(member_id=new.id) == ErrorCode.unknown_member_id, "it speaks the other protocol"
    assert old.sync(generation_id=old.generation + 1).error_code == ErrorCode.illegal_generation
    assert old.sync(protocol_name="sticky").error_code == ErrorCode.inconsistent_group_protocol
    assert old.sync(member_id="made-up").error_code == ErrorCode.unknown_member_id
    connect = classic_member(old.group, name)
    assert connect.ask_join(protocol_type="connect").error_code == ErrorCode.inconsistent_group_protocol


def test_classic_and_consumer_members_commit(mixed: tuple[ClassicMember, ConsumerMember], name: str) -> None:
    old, new = mixed
    assert [old.commit(name, 5), new.commit(name, 6, partition=1)] == [0, 0]
    assert old.commit(name, 7, version=8) == 0, "the member is classic, so old requests are fine"
    assert old.commit(name, 8, generation=old.generation + 1) == ErrorCode.illegal_generation
    assert (old.group.committed(name, 0), old.group.committed(name, 1)) == (7, 6)


def test_a_group_stays_a_consumer_group_after_the_last_classic_member_left(
    mixed: tuple[ClassicMember, ConsumerMember],
) -> None:
    old, new = mixed
    assert old.leave() == 0
    settle(lambda: new.partitions() == {0, 1, 2, 3}, new)
    assert new.group.listed_type() == "consumer"
    assert old.heartbeat() == ErrorCode.unknown_member_id


def test_a_waiting_classic_join_is_answered_when_the_group_is_converted(group: Group, name: str) -> None:
    leader = classic_member(group, name)
    follower = classic_member(group, name)
    group.rebalance(leader, follower, topic=name)
    leader.post_join()
    group.await_state("PreparingRebalance")
    group.consumer([name]).join()
    assert leader.wire.collect().error_code == REBALANCE
    assert group.listed_type() == "consumer"


def test_a_connect_group_is_not_converted(group: Group, name: str) -> None:
    member = group.member(protocols=[("compatible", b"")], protocol_type="connect")
    member.join()
    new = group.consumer([name])
    assert new.code(**new.full()) == ErrorCode.group_id_not_found
    assert (group.listed_type(), member.heartbeat()) == ("classic", 0)


def test_a_classic_group_with_user_data_is_not_converted(group: Group, name: str) -> None:
    """A conversion would lose the user data that the leader put into the assignment."""
    member = classic_member(group, name)
    member.join()
    assert member.sync({member.id: assignment(name, 0)[:-4] + b"\0\0\0\1x"}).error_code == 0
    new = group.consumer([name])
    assert new.code(**new.full()) == ErrorCode.group_id_not_found
    assert (group.listed_type(), member.heartbeat()) == ("classic", 0)


def test_only_a_first_heartbeat_converts_a_classic_group(group: Group, name: str) -> None:
    group.join_members(topic=name, protocols=[("range", subscription(name))])
    new = group.consumer([name])
    assert new.code(member_epoch=1) == ErrorCode.group_id_not_found
    assert new.leave().error_code == ErrorCode.group_id_not_found
    assert group.listed_type() == "classic"


# ---- the last consumer member leaves


def test_a_group_becomes_classic_when_the_last_consumer_member_leaves(
    mixed: tuple[ClassicMember, ConsumerMember], name: str
) -> None:
    old, new = mixed
    generation = old.generation
    assert new.leave().error_code == 0
    assert old.group.listed_type() == "classic"
    assert old.heartbeat() == REBALANCE
    answer = old.join()
    assert (answer.leader, [member.member_id for member in answer.members]) == (old.id, [old.id])
    assert answer.generation_id > generation
    assert old.sync({old.id: assignment(name, 0, 1, 2, 3)}).assignment == assignment(name, 0, 1, 2, 3)
    assert old.group.state() == "Stable"


def test_a_static_consumer_member_can_return_as_a_classic_member(group: Group, name: str) -> None:
    new = group.consumer([name], instance="one")
    join_alone(new, 4)
    old = classic_member(group, name, instance="one")
    answer = old.join()
    assert (answer.error_code, group.listed_type()) == (0, "classic")
    assert new.code() == ErrorCode.group_id_not_found
    shown = read_assignment(old.sync().assignment)
    assert shown == {name: {0, 1, 2, 3}}


def test_a_static_classic_member_can_return_as_a_consumer_member(group: Group, name: str) -> None:
    old = classic_member(group, name, instance="one")
    old.join()
    assert old.sync({old.id: assignment(name, 0, 1, 2, 3)}).error_code == 0
    new = group.consumer([name], instance="one")
    join_alone(new, 4)
    assert group.listed_type() == "consumer"
    assert old.heartbeat() == ErrorCode.fenced_instance_id
    assert [member.member_type for member in group.described_consumers().members] == [CONSUMER]
