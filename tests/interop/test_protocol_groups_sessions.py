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
from harness.patience import Patience
from kio.schema.errors import ErrorCode

SESSION_SECONDS = 6.0
BEAT_SECONDS = 0.2


@dataclass
class GroupsAfterTimeout:
    """The groups after a session timeout in which some members were silent."""

    dynamic: list[ClassicMember]
    """The leader, which sent heartbeats, and the follower, which became silent."""
    kept_s: float
    """How long the follower was kept, at most: counted from before its last request."""
    last: ClassicMember
    """A member that was alone in its group and became silent."""
    static: list[ClassicMember]
    """Like `dynamic`, with instance ids."""
    pending: ClassicMember
    """It got an id and never joined with it."""
    committing: ClassicMember
    """It sent no heartbeats, but commits."""
    joining: list[ClassicMember]
    """A leader that sent heartbeats and did not rejoin, and a newcomer whose JoinGroup waits meanwhile."""
    mixed: tuple[ClassicMember, ConsumerMember]
    """A classic member that became silent in a consumer group, and a consumer member that sent heartbeats."""


def waiting_join(group: Group) -> list[ClassicMember]:
    (leader,), newcomer = group.join_members(session_timeout=6_000), group.member(session_timeout=6_000)
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
    until(lambda: old.heartbeat() == ErrorCode.rebalance_in_progress, "the classic member gets REBALANCE_IN_PROGRESS")
    old.join()
    assert len(read_assignment(old.sync().assignment)[topic]) == 2
    settle(lambda: len(new.partitions()) == 2, new)
    return old, new


def await_session_timeout(after_timeout: GroupsAfterTimeout, topic: str, began: float) -> None:
    """Send heartbeats of the live members until the leaders see a rebalance. The others became silent before."""
    awaited, patience = {"dynamic", "static"}, Patience("the silent members are removed")
    while awaited:
        patience.check(progress=len(awaited))
        for name in ("dynamic", "static"):
            found = getattr(after_timeout, name)[0].heartbeat()
            if name in awaited and found == ErrorCode.rebalance_in_progress:
                awaited.discard(name)
                after_timeout.kept_s = time.monotonic() - began
        assert after_timeout.joining[0].heartbeat() == ErrorCode.rebalance_in_progress
        assert after_timeout.committing.commit(topic, 1) == 0
        after_timeout.mixed[1].heartbeat()
        time.sleep(BEAT_SECONDS)


@pytest.fixture(scope="module")
def after_timeout(bootstrap: str, create_topic: Callable[..., str]) -> Iterator[GroupsAfterTimeout]:
    groups = [Group(bootstrap) for _ in range(7)]
    fields: dict[str, Any] = {"session_timeout": 6_000}
    topic = create_topic(partitions=4)
    try:
        for group in groups:
            group.await_coordinator()
        began = time.monotonic()
        found = GroupsAfterTimeout(
            mixed=mixed_pair(groups[6], topic),
            pending=pending_member(groups[0]),
            last=groups[1].join_members(**fields)[0],
            joining=waiting_join(groups[2]),
            committing=groups[3].join_members(**fields)[0],
            static=static_pair(groups[4]),
            dynamic=groups[5].join_members(2, **fields),
            kept_s=0.0,
        )
        await_session_timeout(found, topic, began)
        yield found
    finally:
        for group in groups:
            group.close()


def test_a_session_is_not_ended_early(after_timeout: GroupsAfterTimeout) -> None:
    assert after_timeout.kept_s >= SESSION_SECONDS


def test_a_silent_member_is_removed(after_timeout: GroupsAfterTimeout) -> None:
    leader, follower = after_timeout.dynamic
    assert follower.heartbeat() == ErrorCode.unknown_member_id
    answer = leader.join()
    assert (answer.generation_id, [member.member_id for member in answer.members]) == (3, [leader.id])
    assert follower.ask_join().error_code == ErrorCode.unknown_member_id


def test_a_silent_static_member_is_removed(after_timeout: GroupsAfterTimeout) -> None:
    leader, follower = after_timeout.static
    assert follower.heartbeat() == ErrorCode.unknown_member_id
    assert [member.group_instance_id for member in leader.join().members] == ["first"]


def test_a_group_whose_last_member_was_removed_is_empty(after_timeout: GroupsAfterTimeout) -> None:
    assert after_timeout.last.group.state() == "Empty"
    assert after_timeout.last.heartbeat() == ErrorCode.unknown_member_id
    assert after_timeout.last.group.member().join().generation_id == 3


def test_a_pending_member_id_expires(after_timeout: GroupsAfterTimeout) -> None:
    assert after_timeout.pending.ask_join().error_code == ErrorCode.unknown_member_id


def test_a_commit_counts_as_a_heartbeat(after_timeout: GroupsAfterTimeout) -> None:
    assert after_timeout.committing.heartbeat() == 0


def test_a_member_with_a_waiting_join_keeps_its_session(after_timeout: GroupsAfterTimeout) -> None:
    leader, newcomer = after_timeout.joining
    assert {member.member_id for member in leader.join().members} == {leader.id, newcomer.id}
    assert newcomer.collect_join().generation_id == 2


def test_a_silent_classic_member_of_a_consumer_group_is_removed(after_timeout: GroupsAfterTimeout) -> None:
    old, new = after_timeout.mixed
    settle(lambda: new.partitions() == {0, 1, 2, 3}, new)
    assert old.heartbeat() == ErrorCode.unknown_member_id
