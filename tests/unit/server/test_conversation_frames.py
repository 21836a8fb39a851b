"""Frames in a stream of bytes: wherever the stream is split, the requests are the same.

Also wrong lengths, frames that never end, and the memory that they may use.
"""

from __future__ import annotations

import pytest
from harness.depth import deep
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_conversation import (
    BUDGET_BYTES,
    FRAME_BYTES_MAX,
    LATER,
    NEVER,
    NOW,
    ScriptedConversation,
    expected_replies,
    frame,
    reply_to,
    request,
)

from moldau.base.errors import MalformedData
from moldau.base.limits import FRAME_TRUSTED_BYTES, REQUESTS_IN_FLIGHT_MAX, REQUESTS_PER_TURN_MAX

THREE = [request(0, NOW, 9), request(1, NOW, 1 + len("now 1 ")), request(2, NOW, 30)]
STREAM = b"".join(map(frame, THREE))
MIB = 1 << 20


def test_requests_are_the_same_wherever_the_stream_is_split() -> None:
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1):
            talk = ScriptedConversation()
            for piece in (STREAM[:first], STREAM[first:second], STREAM[second:]):
                talk.feed(piece)
            assert talk.requests == THREE, (first, second)
            assert talk.collect() == expected_replies(THREE)
            assert talk.conversation.is_idle
            assert talk.budget.free == BUDGET_BYTES


def test_frames_may_arrive_byte_by_byte() -> None:
    for talk, take in ((one := ScriptedConversation(), one.feed), (other := ScriptedConversation(), other.read)):
        for byte in STREAM:
            take(bytes([byte]))
        assert talk.requests == THREE
        assert talk.budget.free == BUDGET_BYTES


@given(st.data())
@settings(max_examples=deep(50, quick=20), deadline=None)
def test_random_requests_in_random_pieces_are_answered_in_order(data: st.DataObject) -> None:
    reply_times = data.draw(
        st.lists(st.sampled_from([NOW, NOW, LATER, NEVER]), min_size=1, max_size=100), "reply times"
    )
    sizes = st.sampled_from([0, 1, 10, 50, 300])
    bodies = [request(number, reply_time, data.draw(sizes)) for number, reply_time in enumerate(reply_times)]
    stream = b"".join(map(frame, bodies))
    pieces = st.one_of(st.integers(1, 12), st.integers(1, 2000))
    talk, position = ScriptedConversation(), 0
    while position < len(stream) or talk.late:
        if talk.late and (talk.conversation.is_full or position == len(stream) or data.draw(st.booleans())):
            talk.settle(data.draw(st.integers(0, len(talk.late) - 1), "late reply"))
        else:
            size = data.draw(pieces, "piece")
            talk.read(stream[position : position + size])
            position += size
        talk.collect()
        assert 0 <= talk.budget.free <= BUDGET_BYTES
    assert talk.requests == bodies
    assert talk.replies == expected_replies(bodies)
    assert talk.conversation.is_idle
    assert talk.conversation.is_answered
    assert talk.budget.free == BUDGET_BYTES


@pytest.mark.parametrize("length", [0, -1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
@pytest.mark.parametrize("split", [1, 3, 4])
def test_an_invalid_length_is_refused_as_soon_as_it_is_read(length: int, split: int) -> None:
    talk = ScriptedConversation()
    prefix = length.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedData, match=str(length)):  # noqa: PT012 - any of the calls may complete the length
        talk.feed(frame(request(1, NOW)) + prefix[:split])
        talk.feed(prefix[split:])
    assert talk.requests == [request(1, NOW)]
    talk.conversation.close()
    assert talk.budget.free == BUDGET_BYTES


def test_a_frame_of_the_maximum_size_is_accepted() -> None:
    talk = ScriptedConversation()
    body = request(1, NOW, FRAME_BYTES_MAX)
    talk.feed(frame(body))
    assert talk.requests == [body]
    talk.feed(frame(body)[:5000])
    talk.read(frame(body)[5000:])
    assert talk.requests == [body, body]


def test_a_claimed_length_takes_no_memory_until_bytes_arrive() -> None:
    talk = ScriptedConversation(budget_bytes=400 * MIB, frame_bytes_max=100 * MIB)
    claimed = 100 * MIB
    talk.feed(claimed.to_bytes(4, "big"))
    sent = 4
    for piece in (b"x" * 1000, b"y" * 300_000, b"z" * MIB, b"w" * (5 * MIB)):
        talk.read(piece)
        sent += len(piece)
        used = talk.budget_bytes - talk.budget.free
        assert sent <= used <= max(FRAME_TRUSTED_BYTES, 2 * sent)
    assert not talk.requests
    talk.conversation.close()
    assert talk.budget.free == talk.budget_bytes


@given(st.lists(st.integers(1, 700_000), min_size=1, max_size=12), st.booleans())
@settings(max_examples=deep(10), deadline=None)
def test_a_large_frame_arrives_whole_in_pieces_of_any_size(pieces: list[int], straight: bool) -> None:
    size = sum(pieces)
    body = (request(7, NOW) + bytes(range(256)) * (size // 256 + 1))[:size]
    talk = ScriptedConversation(budget_bytes=40 * MIB, frame_bytes_max=40 * MIB)
    stream, position = frame(body), 0
    for piece in [3, *pieces, 1]:
        (talk.read if straight else talk.feed)(stream[position : position + piece])
        position += piece
    assert talk.requests == [body]
    assert talk.budget.free == talk.budget_bytes


def test_an_exhausted_budget_closes_only_the_connection_that_needs_more() -> None:
    first, second = ScriptedConversation(budget_bytes=2000), ScriptedConversation()
    second.conversation._memory = first.budget.of_users
    first.feed(frame(request(1, NOW, 1500))[:10])
    second.feed(frame(request(2, NOW, 1500)))
    assert len(second.requests) == 1, "a frame that arrives whole needs no budget"
    with pytest.raises(MalformedData, match="used up"):
        second.feed(frame(request(3, NOW, 1500))[:300])
    second.conversation.close()
    first.feed(frame(request(1, NOW, 1500))[10:])
    assert len(first.requests) == 1
    assert first.budget.free == 2000


def test_a_conversation_with_half_a_frame_is_not_idle_but_answered() -> None:
    talk = ScriptedConversation()
    assert talk.conversation.is_idle
    talk.feed(STREAM[:6])
    assert not talk.conversation.is_idle
    assert talk.conversation.is_answered
    assert talk.conversation.next_reply() is None


def test_the_frame_buffer_exists_only_once_the_length_is_known() -> None:
    talk = ScriptedConversation()
    assert talk.conversation.room() is None
    talk.feed(STREAM[:3])
    assert talk.conversation.room() is None
    talk.feed(STREAM[3:6])
    buffer = talk.conversation.room()
    assert buffer is not None
    assert len(buffer) == 4 + len(THREE[0]) - 6


def test_more_requests_than_may_be_in_flight_are_held_back() -> None:
    talk = ScriptedConversation()
    bodies = [request(number, LATER) for number in range(REQUESTS_IN_FLIGHT_MAX + 40)]
    stream = b"".join(map(frame, bodies))
    talk.feed(stream)
    assert talk.requests == bodies[:REQUESTS_IN_FLIGHT_MAX]
    assert talk.conversation.is_full
    held = len(b"".join(map(frame, bodies[REQUESTS_IN_FLIGHT_MAX:])))
    assert talk.budget.free == BUDGET_BYTES - held
    talk.conversation.resume()
    assert talk.requests == bodies[:REQUESTS_IN_FLIGHT_MAX], "no request was answered meanwhile"
    talk.settle()
    assert talk.collect() == expected_replies(bodies[:1])
    assert talk.requests == bodies[: REQUESTS_IN_FLIGHT_MAX + 1]
    while talk.late:
        talk.settle()
        talk.collect()
    assert talk.requests == bodies
    assert talk.replies == expected_replies(bodies)
    assert talk.budget.free == BUDGET_BYTES


def test_requests_without_an_answer_are_never_held_back() -> None:
    talk = ScriptedConversation()
    bodies = [request(number, NEVER) for number in range(3 * REQUESTS_IN_FLIGHT_MAX)]
    talk.feed(b"".join(map(frame, bodies)))
    assert talk.requests == bodies
    assert talk.conversation.is_idle


def test_feeding_while_requests_are_held_back_is_an_error() -> None:
    """Otherwise requests would overtake each other."""
    talk = ScriptedConversation()
    talk.feed(b"".join(frame(request(number, LATER)) for number in range(REQUESTS_IN_FLIGHT_MAX + 1)))
    with pytest.raises(AssertionError):
        talk.feed(frame(request(99, NOW)))


def test_an_invalid_length_behind_held_back_requests_is_found_when_they_are_resumed() -> None:
    talk = ScriptedConversation()
    many = b"".join(frame(request(number, LATER)) for number in range(REQUESTS_IN_FLIGHT_MAX))
    talk.feed(many + frame(b"now fine") + b"\xff\xff\xff\xff")
    for _ in range(2):
        talk.settle()
        assert talk.conversation.next_reply() is not None
    with pytest.raises(MalformedData):
        talk.conversation.resume()
    talk.conversation.close()
    assert talk.budget.free == BUDGET_BYTES


def test_the_number_of_requests_handled_in_one_turn_is_limited() -> None:
    talk = ScriptedConversation()
    bodies = [request(number, NOW) for number in range(3 * REQUESTS_PER_TURN_MAX - 1)]
    talk.conversation.feed(memoryview(bytearray(b"".join(map(frame, bodies)))))
    turns = [len(talk.requests)]
    while talk.conversation.is_turn_over:
        assert talk.budget.free < talk.budget_bytes, "requests that are held back use the budget"
        assert talk.conversation.resume()
        turns.append(len(talk.requests))
    assert turns == [REQUESTS_PER_TURN_MAX, 2 * REQUESTS_PER_TURN_MAX, 3 * REQUESTS_PER_TURN_MAX - 1]
    assert talk.collect() == [reply_to(body) for body in bodies]
    assert talk.budget.free == talk.budget_bytes
