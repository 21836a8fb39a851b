"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of dynamic members: admission, leadership, generations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from group_members import ClassicMember, Group, assignment, subscription
from harness.patience import LOOK_EVERY_S
from kio.schema.errors import ErrorCode

METADATA = subscription("t")
SHORT_REBALANCE_MS = 1_500
"""Long enough for two members to join on a busy machine."""


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        yield made


@pytest.fixture
def two_members(group: Group) -> tuple[ClassicMember, ClassicMember]:
    """A Stable group of two, in generation 2."""
    leader, follower = group.join_members(2)
    return leader, follower


# JoinGroup: admission


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_member_joins_at_once(group: Group, version: int) -> None:
    answer = group.member().ask_join(version=version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id != ""
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, METADATA)]


@pytest.mark.parametrize("version", range(4, 10))
def test_from_version_4_a_member_gets_an_id_first(group: Group, version: int) -> None:
    member = group.member(version=version)
    first = member.ask_join()
    assert first.error_code == ErrorCode.member_id_required
    assert (first.generation_id, first.leader, first.members) == (-1, "", ())
    assert first.protocol_name == (None if version >= 7 else "")
    assert first.member_id.startswith("interop-")
    assert (group.state(), group.describe().members) == ("Empty", ())
    second = member.ask_join(member_id=first.member_id)
    assert (second.error_code, second.generation_id, second.protocol_name) == (0, 1, "range")
    assert second.member_id == second.leader == first.member_id
    assert [(shown.member_id, shown.metadata) for shown in second.members] == [(first.member_id, METADATA)]
    if version >= 7:
        assert second.protocol_type == "consumer"


def test_an_invented_member_id_is_unknown(group: Group) -> None:
    member = group.member()
    assert member.ask_join(member_id="made-up").error_code == ErrorCode.unknown_member_id
    member.join()
    stranger = group.member().ask_join(member_id="made-up")
    assert (stranger.error_code, stranger.member_id) == (ErrorCode.unknown_member_id, "made-up")


@pytest.mark.parametrize("version", [0, 4, 9])
def test_an_empty_group_id_is_refused(group: Group, version: int) -> None:
    assert group.member().ask_join(group_id="", version=version).error_code == ErrorCode.invalid_group_id


@pytest.mark.parametrize(
    ("timeout_ms", "expected"), [(5_999, 26), (0, 26), (-1, 26), (1_800_001, 26), (6_000, 79), (1_800_000, 79)]
)
def test_a_session_timeout_has_bounds(group: Group, timeout_ms: int, expected: int) -> None:
    assert group.member(session_timeout=timeout_ms).ask_join().error_code == expected


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", [("range", METADATA)]), ("consumer", [])])
def test_a_join_without_protocol_type_or_protocols_is_refused(
    group: Group, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    answer = group.member(protocols=protocols).ask_join(protocol_type=protocol_type)
    assert answer.error_code == ErrorCode.inconsistent_group_protocol


def test_a_join_without_a_common_protocol_is_refused(group: Group) -> None:
    group.join_members(protocols=[("range", METADATA), ("sticky", METADATA)])
    assert group.member(protocols=[("own", b"")]).ask_join().error_code == ErrorCode.inconsistent_group_protocol
    other_type = group.member().ask_join(protocol_type="connect")
    assert other_type.error_code == ErrorCode.inconsistent_group_protocol
    assert group.member(protocols=[("own", b""), ("sticky", METADATA)]).ask_join().error_code == 79


def test_an_empty_group_accepts_another_protocol_type(group: Group) -> None:
    (member,) = group.join_members()
    assert member.leave() == 0
    connect = group.member(protocols=[("compatible", b"")])
    assert connect.ask_join(protocol_type="connect").error_code == ErrorCode.member_id_required


# JoinGroup: common protocol and type


def test_only_the_leader_receives_the_members(group: Group) -> None:
    leader = group.member(protocols=[("range", subscription("a"))])
    follower = group.member(protocols=[("range", subscription("b"))])
    leader.join()
    follower.post_join()
    group.await_members(2)
    leader.post_join()
    to_leader, to_follower = leader.collect_join(), follower.collect_join()
    metadata_by_member = {member.member_id: member.metadata for member in to_leader.members}
    assert metadata_by_member == {leader.id: subscription("a"), follower.id: subscription("b")}
    assert to_follower.members == ()
    assert to_leader.leader == to_follower.leader == leader.id
    assert to_leader.generation_id == to_follower.generation_id == 2


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        (["a", "b"], ["a", "b"], "a"),
        (["b", "a"], ["b", "c", "a"], "b"),
        (["x", "a"], ["y", "a"], "a"),
        (["a", "b", "c"], ["z", "c"], "c"),
    ],
)
def test_the_preferred_common_protocol_is_chosen(
    group: Group, first: list[str], second: list[str], chosen: str
) -> None:
    leader, follower = (group.member(protocols=[(name, name.encode()) for name in names]) for names in (first, second))
    group.rebalance(leader, follower)
    assert leader.protocol == follower.protocol == chosen
    assert [member.member_metadata for member in group.describe().members] == [chosen.encode()] * 2


def test_the_protocol_with_most_votes_is_chosen(group: Group) -> None:
    wishes = (["a", "b"], ["b", "a"], ["b", "a"])
    members = [group.member(protocols=[(name, b"") for name in names]) for names in wishes]
    group.rebalance(*members)
    assert [member.protocol for member in members] == ["b", "b", "b"]


def test_a_leader_that_rejoins_starts_a_new_generation(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    leader, follower = two_members
    leader.post_join()
    leader.group.await_state("PreparingRebalance")
    assert follower.heartbeat() == ErrorCode.rebalance_in_progress
    follower.post_join()
    assert leader.collect_join().generation_id == follower.collect_join().generation_id == 3


def test_a_follower_that_rejoins_unchanged_is_answered_at_once(
    two_members: tuple[ClassicMember, ClassicMember],
) -> None:
    leader, follower = two_members
    again = follower.join()
    assert (again.generation_id, again.members, again.leader) == (2, (), leader.id)
    assert leader.heartbeat() == 0
    assert follower.sync().assignment == assignment("t", 1)


def test_a_follower_with_another_subscription_starts_a_new_generation(
    two_members: tuple[ClassicMember, ClassicMember],
) -> None:
    leader, follower = two_members
    follower.protocols = [("range", subscription("t", "u"))]
    follower.post_join()
    leader.group.await_state("PreparingRebalance")
    answer = leader.join()
    follower.collect_join()
    assert answer.generation_id == 3
    assert subscription("t", "u") in [member.metadata for member in answer.members]


def test_a_join_repeated_before_sync_gets_the_same_answer(group: Group) -> None:
    member = group.member()
    assert member.join() == member.join()
    assert group.state() == "CompletingRebalance"


def test_a_member_that_does_not_rejoin_in_time_is_removed(group: Group) -> None:
    leader, follower = group.join_members(2, rebalance_timeout=SHORT_REBALANCE_MS)
    answer = leader.join()
    assert (answer.generation_id, [member.member_id for member in answer.members]) == (3, [leader.id])
    assert follower.heartbeat() == ErrorCode.unknown_member_id


def test_a_leader_that_does_not_rejoin_in_time_is_replaced(group: Group) -> None:
    leader, follower = group.join_members(2, rebalance_timeout=SHORT_REBALANCE_MS)
    follower.protocols = [("range", subscription("u"))]
    answer = follower.join()
    assert (answer.leader, [member.member_id for member in answer.members]) == (follower.id, [follower.id])
    assert leader.sync().error_code == ErrorCode.unknown_member_id


def test_members_that_rejoined_stay_after_the_rebalance_timeout(group: Group) -> None:
    """The rebalance timeout passes and nothing happens: there is no event to wait for."""
    members = group.join_members(2, rebalance_timeout=SHORT_REBALANCE_MS)
    deadline = time.monotonic() + 1.2 * SHORT_REBALANCE_MS / 1000
    while time.monotonic() < deadline:
        assert [member.heartbeat() for member in members] == [0, 0]
        time.sleep(LOOK_EVERY_S)
    assert group.state() == "Stable"


# ---- SyncGroup


def test_members_receive_their_assignment_or_an_empty_one(group: Group) -> None:
    leader, second, third = group.member(), group.member(), group.member()
    leader.join()
    second.post_join()
    third.post_join()
    group.await_members(3)
    leader.post_join()
    for member in (leader, second, third):
        member.collect_join()
    second.post_sync()
    third.post_sync()
    assert second.wire.is_silent(0.1)
    answers = [leader.sync({leader.id: b"one", second.id: b"two", "made-up": b"x"})]
    answers += [second.wire.collect(), third.wire.collect()]
    assert [(answer.error_code, answer.assignment) for answer in answers] == [(0, b"one"), (0, b"two"), (0, b"")]
    assert {(answer.protocol_type, answer.protocol_name) for answer in answers} == {("consumer", "range")}
    assert group.state() == "Stable"


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync(group: Group, version: int) -> None:
    member = group.member()
    member.join()
    assert member.sync({member.id: b"mine"}, version=version).assignment == b"mine"
    again = member.sync(version=version)
    assert (again.error_code, again.assignment) == (0, b"mine")


def test_invalid_syncs_are_refused(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    _, follower = two_members
    refused: dict[str, tuple[dict[str, Any], int]] = {
        "unknown member": ({"member_id": "made-up"}, 25),
        "empty member id": ({"member_id": ""}, 25),
        "older generation": ({"generation_id": 1}, 22),
        "newer generation": ({"generation_id": 3}, 22),
        "other protocol type": ({"protocol_type": "connect"}, 23),
        "other protocol": ({"protocol_name": "sticky"}, 23),
        "no protocol type": ({"protocol_type": None}, 23),
        "no protocol": ({"protocol_name": None}, 23),
        "empty group id": ({"group_id": ""}, 24),
        "other group": ({"group_id": follower.group.id + "-other"}, 25),
    }
    found = {case: int(follower.sync(**changes).error_code) for case, (changes, _) in refused.items()}
    assert found == {case: expected for case, (_, expected) in refused.items()}
    assert follower.sync().assignment == assignment("t", 1)


def test_a_sync_while_members_join_gets_rebalance_in_progress(two_members: tuple[ClassicMember, ClassicMember]) -> None:
    leader, follower = two_members
    leader.post_join()
    leader.group.await_state("PreparingRebalance")
    assert follower.sync().error_code == ErrorCode.rebalance_in_progress


def test_a_waiting_sync_is_answered_when_a_member_joins(group: Group) -> None:
    leader, follower = group.join_members(2)
    leader.post_join()
    group.await_state("PreparingRebalance")
    follower.join()
    leader.collect_join()
    follower.post_sync()
    assert follower.wire.is_silent(0.1)
    group.member().post_join()
    answer = follower.wire.collect()
    assert (answer.error_code, answer.assignment) == (ErrorCode.rebalance_in_progress, b"")
    assert (answer.protocol_type, answer.protocol_name) == (None, None)


def test_a_member_that_does_not_sync_in_time_is_removed(group: Group) -> None:
    leader, follower = group.member(rebalance_timeout=SHORT_REBALANCE_MS), group.member()
    follower.fields["rebalance_timeout"] = SHORT_REBALANCE_MS
    leader.join()
    follower.post_join()
    group.await_members(2)
    leader.join()
    follower.collect_join()
    assert leader.sync({leader.id: b"mine"}).error_code == 0
    group.await_members(1)
    assert follower.heartbeat() == ErrorCode.unknown_member_id
    assert leader.heartbeat() == ErrorCode.rebalance_in_progress


# ---- Heartbeat


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat(group: Group, version: int) -> None:
    (member,) = group.join_members()
    assert member.heartbeat(version) == 0
    assert member.heartbeat(version, generation_id=7) == ErrorCode.illegal_generation
    assert member.heartbeat(version, member_id="made-up") == ErrorCode.unknown_member_id


def test_invalid_heartbeats_are_refused(group: Group) -> None:
    member = group.member()
    assert member.heartbeat(member_id="made-up") == ErrorCode.unknown_member_id
    assert member.heartbeat(group_id="") == ErrorCode.invalid_group_id
    member.join()
    assert member.heartbeat() == 0, "a member that waits for its assignment is alive"
    assert member.heartbeat(generation_id=0) == ErrorCode.illegal_generation
    assert member.heartbeat(group_instance_id="nobody") == ErrorCode.unknown_member_id


def test_a_pending_id_is_not_yet_a_member(group: Group) -> None:
    member = group.member()
    pending = member.ask_join().member_id
    assert member.heartbeat(member_id=pending) == ErrorCode.unknown_member_id
    member.id = pending
    assert member.leave() == 0
    assert member.ask_join().error_code == ErrorCode.unknown_member_id


def test_a_rebalance_waits_for_a_pending_member(group: Group) -> None:
    """A member that got an id will join in a moment, so the others wait for it."""
    leader, follower = group.join_members(2)
    newcomer = group.member()
    newcomer.id = newcomer.ask_join().member_id
    leader.post_join()
    group.await_state("PreparingRebalance")
    follower.post_join()
    assert leader.wire.is_silent(0.2)
    newcomer.join()
    assert leader.collect_join().generation_id == follower.collect_join().generation_id == newcomer.generation == 3


# ---- LeaveGroup


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leave(group: Group, version: int) -> None:
    leader, follower = group.join_members(2)
    assert follower.leave(version) == 0
    assert leader.heartbeat() == ErrorCode.rebalance_in_progress
    assert follower.heartbeat() == ErrorCode.unknown_member_id
    assert follower.leave(version) == ErrorCode.unknown_member_id
    assert leader.join().generation_id == 3
    assert leader.leave(version) == 0
    assert (group.state(), leader.leave(version)) == ("Empty", ErrorCode.unknown_member_id)


def test_generations_continue_after_the_last_member_left(group: Group) -> None:
    (member,) = group.join_members()
    assert (member.generation, member.leave()) == (1, 0)
    assert group.member().join().generation_id == 3


def test_several_members_leave_in_one_request(group: Group) -> None:
    leader, second, third = group.join_members(3)
    identities = [{"member_id": name, "group_instance_id": None} for name in (second.id, "made-up", third.id, "")]
    answer = group.ask("leave_group", 5, group_id=group.id, members=identities)
    assert answer.error_code == 0
    assert [(shown.member_id, int(shown.error_code)) for shown in answer.members] == [
        (second.id, 0),
        ("made-up", 25),
        (third.id, 0),
        ("", 25),
    ]
    assert [member.member_id for member in group.describe().members] == [leader.id]


def test_leaving_an_unknown_group_is_refused(group: Group) -> None:
    identities = [{"member_id": "made-up", "group_instance_id": None}]
    answer = group.ask("leave_group", 5, group_id=group.id, members=identities)
    assert (answer.error_code, [int(shown.error_code) for shown in answer.members]) == (0, [25])
    assert group.ask("leave_group", 2, group_id=group.id, member_id="made-up").error_code == 25
    assert group.ask("leave_group", 5, group_id="", members=identities).error_code == ErrorCode.invalid_group_id


def test_the_waiting_join_of_a_member_that_leaves_is_answered(group: Group) -> None:
    leader, _ = group.join_members(2)
    leader.post_join()
    group.await_state("PreparingRebalance")
    identities = [{"member_id": leader.id, "group_instance_id": None}]
    assert group.ask("leave_group", 5, group_id=group.id, members=identities).members[0].error_code == 0
    assert leader.wire.collect().error_code == ErrorCode.unknown_member_id
