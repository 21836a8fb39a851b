"""The follower's side of a fetch session: what a request must contain, may leave out, and must repeat."""

from __future__ import annotations

from moldau.runtime.replication.fetch_session import EPOCH_MAX, Position, ReplicaFetchSession
from moldau.wire.messages.fetch import FetchRequest

A, B = (b"a" * 16, 0), (b"b" * 16, 1)
START = Position(0, -1, 0, 5)


def next_request(
    session: ReplicaFetchSession,
) -> tuple[int, int, dict[tuple[bytes, int], int], list[tuple[bytes, int]]]:
    """Return (session id, epoch, fetch offsets, forgotten partitions) of the next request."""
    request = FetchRequest()
    session.fill(request)
    wanted = {
        (topic.topic_id, each.partition): each.fetch_offset for topic in request.topics for each in topic.partitions
    }
    forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    return request.session_id, request.session_epoch, wanted, forgotten


def open_session() -> ReplicaFetchSession:
    session = ReplicaFetchSession(1000)
    session.set_position(A, START)
    session.set_position(B, START)
    assert next_request(session) == (0, 0, {A: 0, B: 0}, [])
    session.on_response(7)
    return session


def test_the_first_request_has_every_partition_and_the_next_only_changes() -> None:
    session = open_session()
    assert next_request(session) == (7, 1, {}, [])
    session.on_response(7)
    session.set_position(A, START._replace(fetch_offset=3))
    session.set_position(B, START)
    assert next_request(session) == (7, 2, {A: 3}, [])
    session.on_response(7)
    assert next_request(session) == (7, 3, {}, [])


def test_a_change_undone_before_it_was_sent_is_not_sent() -> None:
    session = open_session()
    session.set_position(A, START._replace(fetch_offset=3))
    session.set_position(A, START)
    assert next_request(session) == (7, 1, {}, [])


def test_a_dropped_partition_is_forgotten_once() -> None:
    session = open_session()
    session.drop(A)
    assert next_request(session) == (7, 1, {}, [A])
    session.on_response(7)
    assert next_request(session) == (7, 2, {}, [])
    session.drop(B)
    assert not session


def test_an_unsent_partition_need_not_be_forgotten() -> None:
    session = open_session()
    new = (b"c" * 16, 0)
    session.set_position(new, START)
    session.drop(new)
    assert next_request(session) == (7, 1, {}, [])


def test_a_partition_dropped_and_added_again_is_sent_again() -> None:
    """Even without a request in between and at the same position: the leader may have got it before it led."""
    session = open_session()
    session.drop(A)
    session.set_position(A, START)
    assert next_request(session) == (7, 1, {A: 0}, [])


def test_after_a_failure_every_partition_is_sent_again_and_the_old_session_ends() -> None:
    session = open_session()
    session.drop(B)
    session.start_over()
    assert next_request(session) == (7, 0, {A: 0}, [])
    session.on_response(8)
    assert next_request(session) == (8, 1, {}, [])


def test_a_leader_without_a_free_session_gets_every_partition_each_time() -> None:
    session = ReplicaFetchSession(1000)
    session.set_position(A, START)
    for _ in range(3):
        assert next_request(session) == (0, 0, {A: 0}, [])
        session.on_response(0)


def test_epochs_wrap_around_to_one() -> None:
    session = open_session()
    session._epoch = EPOCH_MAX
    assert next_request(session)[1] == EPOCH_MAX
    session.on_response(7)
    assert next_request(session)[1] == 1
