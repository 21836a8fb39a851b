"""A follower's side of a fetch session: what is said, what need not be said, and what must be said again."""

from __future__ import annotations

from moldau.runtime.replication.fetch_session import LAST_EPOCH, Position, ReplicaFetchSession
from moldau.wire.messages.fetch import FetchRequest

A, B = (b"a" * 16, 0), (b"b" * 16, 1)
START = Position(0, -1, 0, 5)


def said(session: ReplicaFetchSession) -> tuple[int, int, dict[tuple[bytes, int], int], list[tuple[bytes, int]]]:
    """(session, epoch, offsets of what is wanted, what is forgotten) of the next request."""
    request = FetchRequest()
    session.fill(request)
    wanted = {
        (topic.topic_id, each.partition): each.fetch_offset for topic in request.topics for each in topic.partitions
    }
    forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    return request.session_id, request.session_epoch, wanted, forgotten


def opened() -> ReplicaFetchSession:
    session = ReplicaFetchSession(1000)
    session.set_position(A, START)
    session.set_position(B, START)
    assert said(session) == (0, 0, {A: 0, B: 0}, [])
    session.on_response(7)
    return session


def test_the_first_request_says_all_and_the_next_only_what_changed() -> None:
    session = opened()
    assert said(session) == (7, 1, {}, [])
    session.on_response(7)
    session.set_position(A, START._replace(fetch_offset=3))
    session.set_position(B, START)
    assert said(session) == (7, 2, {A: 3}, [])
    session.on_response(7)
    assert said(session) == (7, 3, {}, [])


def test_a_change_taken_back_before_it_was_said_is_none() -> None:
    session = opened()
    session.set_position(A, START._replace(fetch_offset=3))
    session.set_position(A, START)
    assert said(session) == (7, 1, {}, [])


def test_what_is_not_wanted_any_more_is_forgotten_once() -> None:
    session = opened()
    session.drop(A)
    assert said(session) == (7, 1, {}, [A])
    session.on_response(7)
    assert said(session) == (7, 2, {}, [])
    session.drop(B)
    assert not session


def test_what_was_never_said_need_not_be_forgotten() -> None:
    session = opened()
    new = (b"c" * 16, 0)
    session.set_position(new, START)
    session.drop(new)
    assert said(session) == (7, 1, {}, [])


def test_what_is_dropped_and_wanted_again_is_said_again() -> None:
    """Nothing was said in between, and its position is the same; but the leader may have heard it before it led."""
    session = opened()
    session.drop(A)
    session.set_position(A, START)
    assert said(session) == (7, 1, {A: 0}, [])


def test_after_a_failure_all_is_said_again_and_the_old_session_ends() -> None:
    session = opened()
    session.drop(B)
    session.start_over()
    assert said(session) == (7, 0, {A: 0}, [])
    session.on_response(8)
    assert said(session) == (8, 1, {}, [])


def test_a_leader_without_room_for_sessions_hears_everything_each_time() -> None:
    session = ReplicaFetchSession(1000)
    session.set_position(A, START)
    for _ in range(3):
        assert said(session) == (0, 0, {A: 0}, [])
        session.on_response(0)


def test_epochs_begin_at_one_again() -> None:
    session = opened()
    session._epoch = LAST_EPOCH
    assert said(session)[1] == LAST_EPOCH
    session.on_response(7)
    assert said(session)[1] == 1
