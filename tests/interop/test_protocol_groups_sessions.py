"""Sessions of classic members: a member without heartbeats is removed, and which requests count as heartbeats.

No session may be shorter than six seconds, so all groups here wait together, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from group_members import (
    ClassicMember,
    ConsumerMember,
    Group,
    assignment,
    read_assignment,
    settle,
    subscription,
    until,
)
from kio.schema.errors import ErrorCode
from patience import Patience

SESSION_SECONDS = 6.0
BEAT_SECONDS = 0.2


@dataclass
class Waited:
    """The groups after a session timeout in which some members were silent."""

    vanished: list[ClassicMember]
    """The leader, which sent heartbeats, and the follower, which became silent."""
    seconds: float
    """How long the follower was kept, at most: counted from before its last request."""
    last: ClassicMember
    """A member that was alone in its group and became silent."""
    static: list[ClassicMember]
    """Like `vanished`, with instance ids."""
    pending: ClassicMember
    """It got an id and never joined with it."""
    committing: ClassicMember
    """It sent no heartbeats, but commits."""
    joining: list[ClassicMember]
    """A leader that sent heartbeats and did not rejoin, and a newcomer whose JoinGroup waits meanwhile."""
    mixed: tuple[ClassicMember, ConsumerMember]
    """A classic member that became silent in a consumer group, and a consumer member that sent heartbeats."""


def held_join(group: Group) -> list[ClassicMember]:
    (leader,), newcomer = group.stable(session_timeout=6_000), group.member(session_timeout=6_000)
    newcomer.post_join()
    group.await_members(2)
    return [leader, newcomer]


def pending_member(group: Group) -> ClassicMember:
    member = group.member(session_timeout=6_000)
    answer = member.ask_join()
    assert answer.error_code == ErrorCode.member_id_required
    member.id = answer.member_id
    return member


def static_pair(group: Group) -> list[ClassicMember]:
    pair = [group.member(instance=name, session_timeout=6_000) for name in ("first", "second")]
    group.rebalance(*pair)
    return pair


def mixed_pair(group: Group, topic: str) -> tuple[ClassicMember, ConsumerMember]:
    """Each owns two of the four partitions."""
    group.assign_at_once()
    old = group.member(session_timeout=6_000, protocols=[("range", subscription(topic))])
    old.join()
    assert old.sync({old.id: assignment(topic, 0, 1, 2, 3)}).error_code == 0
    new = group.consumer([topic])
    new.join()
    until(lambda: old.heartbeat() == ErrorCode.rebalance_in_progress, "the classic member is told to rejoin")
    old.join()
    assert len(read_assignment(old.sync().assignment)[topic]) == 2
    settle(lambda: len(new.partitions()) == 2, new)
    return old, new


def wait_for_the_session_to_end(waited: Waited, topic: str, began: float) -> None:
    """Send heartbeats of the live members until the leaders see a rebalance. The others became silent before."""
    awaited, patience = {"vanished", "static"}, Patience("those who fell silent are put out")
    while awaited:
        patience.check(progress=len(awaited))
        for name in ("vanished", "static"):
            found = getattr(waited, name)[0].heartbeat()
            if name in awaited and found == ErrorCode.rebalance_in_progress:
                awaited.discard(name)
                waited.seconds = time.monotonic() - began
        assert waited.joining[0].heartbeat() == ErrorCode.rebalance_in_progress
        assert waited.committing.commit(topic, 1) == 0
        waited.mixed[1].heartbeat()
        time.sleep(BEAT_SECONDS)


@pytest.fixture(scope="module")
def waited(bootstrap: str, create_topic: Callable[..., str]) -> Iterator[Waited]:
    groups = [Group(bootstrap) for _ in range(7)]
    fields: dict[str, Any] = {"session_timeout": 6_000}
    topic = create_topic(partitions=4)
    try:
        for group in groups:
            group.await_coordinator()
        began = time.monotonic()
        found = Waited(
            mixed=mixed_pair(groups[6], topic),
            pending=pending_member(groups[0]),
            last=groups[1].stable(**fields)[0],
            joining=held_join(groups[2]),
            committing=groups[3].stable(**fields)[0],
            static=static_pair(groups[4]),
            vanished=groups[5].stable(2, **fields),
            seconds=0.0,
        )
        wait_for_the_session_to_end(found, topic, began)
        yield found
    finally:
        for group in groups:
            group.close()


def test_the_session_is_not_cut_short(waited: Waited) -> None:
    assert waited.seconds >= SESSION_SECONDS


def test_who_vanished_is_no_member_any_more(waited: Waited) -> None:
    leader, follower = waited.vanished
    assert follower.heartbeat() == ErrorCode.unknown_member_id
    answer = leader.join()
    assert (answer.generation_id, [member.member_id for member in answer.members]) == (3, [leader.id])
    assert follower.ask_join().error_code == ErrorCode.unknown_member_id


def test_a_static_member_that_vanished_is_forgotten(waited: Waited) -> None:
    leader, follower = waited.static
    assert follower.heartbeat() == ErrorCode.unknown_member_id
    assert [member.group_instance_id for member in leader.join().members] == ["first"]


def test_a_group_whose_last_member_vanished_is_empty(waited: Waited) -> None:
    assert waited.last.group.state() == "Empty"
    assert waited.last.heartbeat() == ErrorCode.unknown_member_id
    assert waited.last.group.member().join().generation_id == 3


def test_an_id_that_was_never_used_is_forgotten(waited: Waited) -> None:
    assert waited.pending.ask_join().error_code == ErrorCode.unknown_member_id


def test_a_commit_is_a_sign_of_life(waited: Waited) -> None:
    assert waited.committing.heartbeat() == 0


def test_a_held_join_is_a_sign_of_life(waited: Waited) -> None:
    leader, newcomer = waited.joining
    assert {member.member_id for member in leader.join().members} == {leader.id, newcomer.id}
    assert newcomer.collect_join().generation_id == 2


def test_a_classic_member_of_a_group_whose_broker_assigns_has_its_own_session(waited: Waited) -> None:
    old, new = waited.mixed
    settle(lambda: new.partitions() == {0, 1, 2, 3}, new)
    assert old.heartbeat() == ErrorCode.unknown_member_id
