"""Incremental fetch sessions (KIP-227): full, incremental, forgetting, closing, and their errors.

A broker may always answer with session 0 ("no session"); these tests are for one that has sessions, as Apache does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from batches import batch
from kio.schema.errors import ErrorCode
from protocol_requests import NEVER_MS, produce, topic_id
from wire_client import Wire, message

CreateTopic = Callable[..., str]
CLOSE = -1


@pytest.fixture
def name(wire: Wire, create_topic: CreateTopic) -> str:
    """Three partitions; partition 0 holds one record."""
    made = create_topic(partitions=3)
    produce(wire, made, batch([b"v"]))
    return made


def ask(wire: Wire, session: int, epoch: int, positions: dict[int, int], **fields: Any) -> Any:
    """`positions` are offsets by partition; `topic` names the topic."""
    topic = fields.pop("topic")
    requested = [
        {"partition": n, "fetch_offset": offset, "partition_max_bytes": 1000} for n, offset in positions.items()
    ]
    topics = [{"topic": topic, "partitions": requested}] if requested else []
    return wire.ask(
        message(
            "fetch",
            12,
            **(
                {"max_wait": 0, "min_bytes": 0, "session_id": session, "session_epoch": epoch, "topics": topics}
                | fields
            ),
        )
    )


def shown(answer: Any) -> dict[int, int]:
    """Return the bytes of records by partition, for the partitions in the response."""
    return {p.partition_index: len(p.records or b"") for t in answer.responses for p in t.partitions}


def open_session(wire: Wire, name: str) -> int:
    answer = ask(wire, 0, 0, {0: 0, 1: 0, 2: 0}, topic=name)
    assert answer.error_code == 0
    assert answer.session_id > 0
    assert set(shown(answer)) == {0, 1, 2}
    return int(answer.session_id)


def test_a_full_fetch_opens_a_session(wire: Wire, name: str) -> None:
    open_session(wire, name)


def test_session_epoch_minus_one_opens_no_session(wire: Wire, name: str) -> None:
    assert ask(wire, 0, -1, {0: 0}, topic=name).session_id == 0


def test_an_incremental_fetch_returns_only_changed_partitions(wire: Wire, name: str) -> None:
    session = open_session(wire, name)
    again = ask(wire, session, 1, {}, topic=name)
    assert again.session_id == session
    assert set(shown(again)) == {0}, "partition 0 still has a record at the requested offset"
    moved = ask(wire, session, 2, {0: 1}, topic=name)
    assert shown(moved) == {}
    produce(wire, name, batch([b"news"]), partition=2)
    assert set(shown(ask(wire, session, 3, {}, topic=name))) == {2}


def test_forgotten_partitions_are_no_longer_returned(wire: Wire, name: str) -> None:
    session = open_session(wire, name)
    forget = [{"topic": name, "partitions": [0]}]
    assert shown(ask(wire, session, 1, {}, topic=name, forgotten_topics_data=forget)) == {}
    assert set(shown(ask(wire, session, 2, {0: 0}, topic=name))) == {0}


def test_a_wrong_session_epoch_is_refused(wire: Wire, name: str) -> None:
    session = open_session(wire, name)
    for epoch in (2, 5):
        answer = ask(wire, session, epoch, {}, topic=name)
        assert (answer.error_code, answer.session_id, answer.responses) == (
            ErrorCode.invalid_fetch_session_epoch,
            0,
            (),
        )
    assert ask(wire, session, 1, {}, topic=name).error_code == 0
    assert ask(wire, session, 1, {}, topic=name).error_code == ErrorCode.invalid_fetch_session_epoch


def test_an_unknown_session_is_refused(wire: Wire, name: str) -> None:
    answer = ask(wire, 123_456_789, 1, {}, topic=name)
    assert (answer.error_code, answer.session_id) == (ErrorCode.fetch_session_id_not_found, 0)


def test_a_closed_session_is_not_found(wire: Wire, name: str) -> None:
    session = open_session(wire, name)
    closed = ask(wire, session, CLOSE, {}, topic=name)
    assert (closed.error_code, closed.session_id) == (0, 0)
    assert ask(wire, session, 1, {}, topic=name).error_code == ErrorCode.fetch_session_id_not_found


def test_a_full_fetch_with_an_old_id_replaces_that_session(wire: Wire, name: str) -> None:
    session = open_session(wire, name)
    answer = ask(wire, session, 0, {1: 0}, topic=name)
    assert answer.error_code == 0
    assert answer.session_id not in (0, session)
    assert ask(wire, session, 1, {}, topic=name).error_code == ErrorCode.fetch_session_id_not_found


def test_a_session_can_be_used_from_another_connection(wire: Wire, name: str, bootstrap: str) -> None:
    """A session belongs to its id, not to its connection."""
    session = open_session(wire, name)
    with Wire(bootstrap) as other:
        assert ask(other, session, 1, {0: 1}, topic=name).error_code == 0
    assert ask(wire, session, 2, {}, topic=name).error_code == 0


def test_an_incremental_fetch_waits_for_a_write(wire: Wire, name: str, bootstrap: str) -> None:
    session = open_session(wire, name)
    assert ask(wire, session, 1, {0: 1}, topic=name).error_code == 0
    with Wire(bootstrap) as waiter:
        waiter.post(
            message("fetch", 12, max_wait=NEVER_MS, min_bytes=1, session_id=session, session_epoch=2, topics=[])
        )
        assert waiter.is_silent(0.2)
        produce(wire, name, batch([b"news"]), partition=1)
        assert set(shown(waiter.collect())) == {1}


def test_a_partition_error_is_repeated_in_every_response(wire: Wire, name: str) -> None:
    session = ask(wire, 0, 0, {0: 1, 9: 0}, topic=name).session_id
    for epoch in (1, 2):
        (failed,) = ask(wire, session, epoch, {}, topic=name).responses[0].partitions
        assert (failed.partition_index, failed.error_code) == (9, ErrorCode.unknown_topic_or_partition)


def test_a_session_opened_by_topic_id_refuses_fetches_by_name(wire: Wire, name: str) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic_id": topic_id(wire, name), "partitions": [partition]}]
    opened = wire.ask(message("fetch", 16, max_wait=0, min_bytes=0, session_id=0, session_epoch=0, topics=topics))
    assert opened.session_id > 0
    by_name = ask(wire, opened.session_id, 1, {}, topic=name)
    assert by_name.error_code == ErrorCode.fetch_session_topic_id_error
