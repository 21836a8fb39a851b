"""A conversation sends replies in the order of their requests, whenever they are ready; and what `close` does."""

from __future__ import annotations

from random import Random

import pytest
from scripted_conversation import (
    BUDGET_BYTES,
    LATER,
    NEVER,
    NOW,
    ScriptedConversation,
    expected_replies,
    frame,
    request,
)

from moldau.base.promise import Promise
from moldau.server.conversation import ConnectionBudget, Conversation
from moldau.wire.codec import Outgoing


def conversation_of(*reply_times: str) -> tuple[ScriptedConversation, list[bytes]]:
    talk = ScriptedConversation()
    bodies = [request(number, reply_time) for number, reply_time in enumerate(reply_times)]
    talk.feed(b"".join(map(frame, bodies)))
    return talk, bodies


def test_a_reply_waits_for_those_before_it() -> None:
    talk, bodies = conversation_of(LATER, NOW, LATER, NOW)
    assert talk.collect() == []
    talk.settle(1)
    assert talk.collect() == []
    talk.settle(0)
    assert talk.collect() == expected_replies(bodies)


def test_every_order_of_completion_gives_the_same_order_of_replies() -> None:
    rng = Random(1)
    for _ in range(60):
        talk, bodies = conversation_of(*rng.choices([NOW, LATER, NEVER], k=20))
        while talk.late:
            talk.settle(rng.randrange(len(talk.late)))
            if rng.random() < 0.5:
                talk.collect()
        talk.collect()
        assert talk.replies == expected_replies(bodies)


def test_only_the_first_unanswered_request_wakes_the_connection() -> None:
    talk, _ = conversation_of(LATER, LATER, NOW)
    talk.settle(1)
    assert talk.wakes == 0
    talk.settle(0)
    assert talk.wakes == 1
    assert len(talk.collect()) == 3


def test_a_promise_that_is_already_complete_wakes_the_connection() -> None:
    promise: Promise[Outgoing] = Promise()
    promise.complete(Outgoing(b"done"))
    wakes: list[int] = []
    conversation = Conversation(lambda _: promise, lambda: wakes.append(1), 1000, ConnectionBudget(1000))
    conversation.feed(memoryview(bytearray(frame(b"x"))))
    assert wakes == [1]
    assert conversation.next_reply() is promise.value()


def test_late_replies_after_close_are_dropped() -> None:
    talk, _ = conversation_of(LATER, LATER)
    talk.feed(b"\0\0")
    talk.conversation.close()
    talk.settle(0)
    talk.settle(0)
    assert talk.wakes == 0
    assert talk.collect() == []
    assert talk.conversation.is_idle
    assert talk.budget.free == BUDGET_BYTES


@pytest.mark.parametrize(
    "tail", [b"", b"\0", b"\0\0\0\x20half"], ids=["whole frames", "part of a length", "part of a frame"]
)
def test_a_close_while_bytes_are_parsed_ends_the_conversation(tail: bytes) -> None:
    """Sending the first reply can close the connection while the bytes after its request are still being parsed."""
    talk = ScriptedConversation()
    talk.on_wake = talk.conversation.close
    talk.feed(frame(request(0, LATER)))
    scratch = bytearray(frame(request(1, NEVER)) + frame(request(2, NOW)) + tail)
    original = talk.conversation._answer

    def answer(view: memoryview) -> object:
        if talk.late:
            talk.settle()
        return original(view)

    talk.conversation._answer = answer  # type: ignore[assignment]
    talk.conversation.feed(memoryview(scratch))
    assert talk.wakes == 1
    assert talk.budget.free == BUDGET_BYTES, "a closed connection still holds budget"
    assert talk.conversation.next_reply() is None
    assert request(2, NOW) not in talk.requests, "a request was handled after the close"
