"""Static members of classic groups: a restart with the same instance id moves no partition and fences the old one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from group_members import ClassicMember, Group, assignment, subscription
from kio.schema.errors import ErrorCode

FENCED = ErrorCode.fenced_instance_id
UNKNOWN = ErrorCode.unknown_member_id


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        yield made


@pytest.fixture
def two_members(group: Group) -> tuple[ClassicMember, ClassicMember]:
    """A Stable group of two static members, `first` leading `second`, in generation 2."""
    leader, follower = group.member(instance="first"), group.member(instance="second")
    group.rebalance(leader, follower)
    return leader, follower


def restarted(member: ClassicMember, **fields: str) -> ClassicMember:
    """Return a new process with the same instance id, which knows no member id."""
    return member.group.member(instance=member.instance, **fields)


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_joins_at_once(group: Group, version: int) -> None:
    answer = group.member(instance="one", version=version).ask_join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
    assert answer.member_id.startswith("one-")
    assert [shown.group_instance_id for shown in answer.members] == ["one"]


def test_a_restarted_follower_gets_its_assignment_back(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    leader, follower = two_members
    again = restarted(follower)
    answer = again.join()
    assert (answer.generation_id, answer.leader, answer.members) == (2, leader.id, ())
    assert answer.skip_assignment is False
    assert again.id != follower.id
    assert again.sync().assignment == assignment("t", 1)
    assert (leader.heartbeat(), again.heartbeat(), leader.group.state()) == (0, 0, "Stable")


def test_a_restarted_leader_gets_skip_assignment(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    leader, follower = two_members
    again = restarted(leader)
    answer = again.join()
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (2, again.id, True)
    assert {shown.member_id: shown.group_instance_id for shown in answer.members} == {
        again.id: "first",
        follower.id: "second",
    }
    assert again.sync().assignment == assignment("t", 0)
    assert follower.heartbeat() == 0


@pytest.mark.parametrize("version", range(5, 9))
def test_before_version_9_a_restarted_leader_sees_its_former_id_as_leader(
    two_members: tuple[ClassicMember, ClassicMember], version: int
) -> None:
    """The response shows its former id as the leader, so that it does not compute an assignment that is not needed."""
    leader, _ = two_members
    answer = leader.group.member(instance="first", version=version).join()
    assert (answer.generation_id, answer.leader, answer.members) == (2, leader.id, ())


def test_a_replaced_member_is_fenced_in_every_request(
    two_members: tuple[ClassicMember, ClassicMember], create_topic: Callable[..., str]
) -> None:
    _, old = two_members
    new = restarted(old)
    new.join()
    assert old.ask_join().error_code == FENCED
    assert old.sync().error_code == FENCED
    assert old.heartbeat() == FENCED
    assert old.commit(create_topic(), 1) == FENCED
    assert old.leave() == FENCED
    assert new.heartbeat() == 0


def test_a_replaced_member_is_unknown_without_its_instance_id(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    _, old = two_members
    restarted(old).join()
    assert old.heartbeat(group_instance_id=None) == UNKNOWN
    assert old.sync(group_instance_id=None).error_code == UNKNOWN
    assert old.ask_join(group_instance_id=None).error_code == UNKNOWN


def test_an_unknown_instance_id_is_refused(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    _, member = two_members
    assert member.heartbeat(group_instance_id="third") == UNKNOWN
    assert member.sync(group_instance_id="third").error_code == UNKNOWN
    assert member.ask_join(group_instance_id="third").error_code == UNKNOWN
    assert member.heartbeat(group_instance_id="first") == FENCED


def test_an_old_heartbeat_version_has_no_instance_id(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    _, member = two_members
    assert member.heartbeat(version=2) == 0


def test_a_restart_with_another_subscription_causes_no_rebalance(
    two_members: tuple[ClassicMember, ClassicMember],
) -> None:
    leader, follower = two_members
    again = restarted(follower)
    again.protocols = [("range", subscription("t", "u"))]
    assert again.join().generation_id == 2
    assert leader.heartbeat() == 0


def test_a_restart_that_changes_the_chosen_protocol_rebalances(group: Group) -> None:
    both = [("range", subscription("t")), ("sticky", subscription("t"))]
    leader = group.member(instance="first", protocols=both)
    follower = group.member(instance="second", protocols=both)
    group.rebalance(leader, follower)
    again = restarted(follower)
    again.protocols = both[1:]
    again.post_join()
    group.await_state("PreparingRebalance")
    assert leader.heartbeat() == ErrorCode.rebalance_in_progress
    assert leader.join().protocol_name == again.collect_join().protocol_name == "sticky"
    assert again.generation == 3


def test_a_static_member_may_rejoin_with_its_own_member_id(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    leader, follower = two_members
    assert follower.join().generation_id == 2
    leader.post_join()
    leader.group.await_state("PreparingRebalance")
    assert follower.join().generation_id == leader.collect_join().generation_id == 3


# ---- replaced in the middle of a rebalance


def test_a_waiting_join_is_fenced_by_the_replacement(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    leader, old = two_members
    leader.post_join()
    leader.group.await_state("PreparingRebalance")
    leader.group.member(instance="third").post_join()
    leader.group.await_members(3)
    new = restarted(leader)
    new.post_join()
    answer = leader.wire.collect()
    assert (answer.error_code, answer.member_id, answer.members) == (FENCED, leader.id, ())
    old.post_join()
    member_ids = {shown.group_instance_id: shown.member_id for shown in new.collect_join().members}
    assert member_ids.keys() == {"first", "second", "third"}
    assert (member_ids["first"], member_ids["second"]) == (new.id, old.id)
    assert old.collect_join().leader == new.id


def test_a_waiting_sync_is_fenced_by_the_replacement(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    """The leader may have seen the former id already, so all members rejoin."""
    leader, old = two_members
    leader.post_join()
    leader.group.await_state("PreparingRebalance")
    old.join()
    leader.collect_join()
    old.post_sync()
    assert old.wire.is_silent(0.1)
    new = restarted(old)
    new.post_join()
    assert old.wire.collect().error_code == FENCED
    assert leader.sync({}).error_code == ErrorCode.rebalance_in_progress
    assert leader.join().generation_id == new.collect_join().generation_id == 4


def test_a_static_member_that_misses_the_rebalance_stays_in_the_group(group: Group) -> None:
    """Dynamic members are removed at the rebalance timeout; a static one only with its session."""
    leader, follower = (group.member(instance=name, rebalance_timeout=1_500) for name in ("first", "second"))
    group.rebalance(leader, follower)
    answer = leader.join()
    assert answer.generation_id == 3
    assert {shown.group_instance_id for shown in answer.members} == {"first", "second"}
    assert follower.heartbeat() == ErrorCode.illegal_generation


# ---- leaving


@pytest.mark.parametrize("version", range(3, 6))
def test_a_member_is_removed_by_its_instance_id(two_members: tuple[ClassicMember, ClassicMember], version: int) -> None:
    leader, _ = two_members
    names = ("second", "nobody")
    identities = [{"member_id": "", "group_instance_id": name} for name in names]
    answer = leader.group.ask("leave_group", version, group_id=leader.group.id, members=identities)
    found = [(shown.member_id, shown.group_instance_id, int(shown.error_code)) for shown in answer.members]
    assert found == [("", "second", 0), ("", "nobody", UNKNOWN)]
    assert leader.heartbeat() == ErrorCode.rebalance_in_progress
    assert [shown.member_id for shown in leader.join().members] == [leader.id]


def test_a_wrong_member_id_does_not_remove_an_instance(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    leader, follower = two_members
    group = leader.group
    cases = [("made-up", "second"), (leader.id, "second"), (follower.id, "nobody"), ("made-up", None)]
    identities = [{"member_id": member, "group_instance_id": instance} for member, instance in cases]
    answer = group.ask("leave_group", 5, group_id=group.id, members=identities)
    assert [int(shown.error_code) for shown in answer.members] == [FENCED, FENCED, UNKNOWN, UNKNOWN]
    assert (leader.heartbeat(), follower.heartbeat()) == (0, 0)


def test_an_instance_that_left_rejoins_as_a_new_member(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    leader, follower = two_members
    assert follower.leave() == 0
    assert leader.join().generation_id == 3
    again = restarted(follower)
    again.post_join()
    leader.group.await_members(2)
    assert leader.heartbeat() == ErrorCode.rebalance_in_progress
    assert leader.join().generation_id == again.collect_join().generation_id == 4
    assert follower.heartbeat() == FENCED


def test_static_and_dynamic_members_share_one_group(group: Group) -> None:
    static, dynamic = group.member(instance="one"), group.member()
    group.rebalance(static, dynamic)
    shown = {member.member_id: member.group_instance_id for member in group.describe().members}
    assert shown == {static.id: "one", dynamic.id: None}
    assert dynamic.leave() == 0
    assert static.heartbeat() == ErrorCode.rebalance_in_progress
