"""Sessions of share groups: epochs, which partitions they read, limits, and the connection they belong to."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.share.sessions import PLACES_MAX, Place, ShareSession, ShareSessions

TOPIC = bytes(range(16))
FIRST, SECOND, THIRD = (Place(TOPIC, index) for index in range(3))


def open_one(sessions: ShareSessions, member: str = "m1", group: str = "g", address: str = "host:1") -> ShareSession:
    return sessions.open(group, member, address, [FIRST, SECOND])


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_each_request_has_the_next_epoch() -> None:
    sessions = ShareSessions(10)
    session = open_one(sessions)
    assert sessions.resume("g", "m1", 1) is session
    assert sessions.resume("g", "m1", 2) is session
    with pytest.raises(KafkaError) as refused:
        sessions.resume("g", "m1", 2)
    assert code_of(refused) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_after_the_last_epoch_comes_the_first() -> None:
    sessions = ShareSessions(10)
    open_one(sessions).epoch = 2**31 - 1
    assert sessions.resume("g", "m1", 2**31 - 1).epoch == 1


@pytest.mark.parametrize(("group", "member"), [("other", "m1"), ("g", "other")])
def test_a_session_belongs_to_one_member_of_one_group(group: str, member: str) -> None:
    sessions = ShareSessions(10)
    open_one(sessions)
    with pytest.raises(KafkaError) as refused:
        sessions.resume(group, member, 1)
    assert code_of(refused) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_its_partitions_begin_with_another_one_in_each_request() -> None:
    sessions = ShareSessions(10)
    session = open_one(sessions)
    sessions.change(session, [THIRD], ())
    turns = [session.in_turn()]
    for epoch in (1, 2, 3):
        turns.append(sessions.resume("g", "m1", epoch).in_turn())
    assert turns == [[FIRST, SECOND, THIRD], [SECOND, THIRD, FIRST], [THIRD, FIRST, SECOND], [FIRST, SECOND, THIRD]]


def test_partitions_are_added_and_forgotten() -> None:
    sessions = ShareSessions(10)
    session = open_one(sessions)
    session.places[FIRST] = True
    sessions.change(session, [FIRST, THIRD], [SECOND, Place(TOPIC, 9)])
    assert session.places == {FIRST: True, THIRD: False}


def test_a_member_that_opens_a_session_again_has_one() -> None:
    sessions = ShareSessions(1)
    first = open_one(sessions)
    second = open_one(sessions, address="host:2")
    assert len(sessions) == 1
    assert sessions.get("g", "m1") is second
    sessions.close(first)
    assert sessions.get("g", "m1") is second
    assert sessions.at("host:1") is None


def test_there_is_a_limit() -> None:
    sessions = ShareSessions(2)
    first = open_one(sessions)
    open_one(sessions, "m2")
    with pytest.raises(KafkaError) as refused:
        open_one(sessions, "m3")
    assert code_of(refused) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.close(first)
    open_one(sessions, "m3")


def test_all_sessions_together_have_a_limit_of_partitions() -> None:
    sessions = ShareSessions(10)
    first = open_one(sessions)
    with pytest.raises(KafkaError) as refused:
        sessions.open("g", "m2", "host:2", (Place(TOPIC, index) for index in range(PLACES_MAX - 1)))
    assert code_of(refused) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.close(first)
    sessions.open("g", "m2", "host:2", (Place(TOPIC, index) for index in range(PLACES_MAX - 1)))


def test_a_group_has_members_until_the_last_session_is_closed() -> None:
    sessions = ShareSessions(10)
    first, second = open_one(sessions), open_one(sessions, "m2", address="host:2")
    sessions.close(first)
    assert sessions.has_members("g")
    sessions.close(second)
    assert not sessions.has_members("g")
    sessions.close(second)
    assert len(sessions) == 0


def test_a_connection_knows_the_session_that_it_opened_last() -> None:
    sessions = ShareSessions(10)
    open_one(sessions)
    second = open_one(sessions, "m2")
    assert sessions.at("host:1") is second
    sessions.close(second)
    assert sessions.at("host:1") is None
