"""Replies leave in the order their requests came, whenever they are ready; and the end of a conversation."""

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
from moldau.server.conversation import Conversation, ReceiveBudget
from moldau.wire.codec import Outgoing


def talk_of(*moods: str) -> tuple[ScriptedConversation, list[bytes]]:
    talk = ScriptedConversation()
    bodies = [request(number, mood) for number, mood in enumerate(moods)]
    talk.feed(b"".join(map(frame, bodies)))
    return talk, bodies


def test_a_reply_waits_for_those_before_it() -> None:
    talk, bodies = talk_of(LATER, NOW, LATER, NOW)
    assert talk.collect() == []
    talk.settle(1)
    assert talk.collect() == []
    talk.settle(0)
    assert talk.collect() == expected_replies(bodies)


def test_every_order_of_completion_gives_the_same_order_of_replies() -> None:
    rng = Random(1)
    for _ in range(60):
        talk, bodies = talk_of(*rng.choices([NOW, LATER, NEVER], k=20))
        while talk.late:
            talk.settle(rng.randrange(len(talk.late)))
            if rng.random() < 0.5:
                talk.collect()
        talk.collect()
        assert talk.replies == expected_replies(bodies)


def test_only_the_head_of_the_queue_wakes() -> None:
    talk, _ = talk_of(LATER, LATER, NOW)
    talk.settle(1)
    assert talk.wakes == 0
    talk.settle(0)
    assert talk.wakes == 1
    assert len(talk.collect()) == 3


def test_a_promise_kept_before_it_was_given_wakes_too() -> None:
    kept: Promise[Outgoing] = Promise()
    kept.complete(Outgoing(b"done"))
    wakes: list[int] = []
    conversation = Conversation(lambda _: kept, lambda: wakes.append(1), 1000, ReceiveBudget(1000))
    conversation.feed(memoryview(bytearray(frame(b"x"))))
    assert wakes == [1]
    assert conversation.next_reply() is kept.value()


def test_late_replies_find_nobody_after_the_end() -> None:
    talk, _ = talk_of(LATER, LATER)
    talk.feed(b"\0\0")
    talk.conversation.close()
    talk.settle(0)
    talk.settle(0)
    assert talk.wakes == 0
    assert talk.collect() == []
    assert talk.conversation.is_idle
    assert talk.budget.free == BUDGET_BYTES


@pytest.mark.parametrize("tail", [b"", b"\0", b"\0\0\0\x20half"])
def test_an_end_in_the_middle_of_reading_leaves_nothing_behind(tail: bytes) -> None:
    """Sending the first reply can end the connection while the bytes behind its request are still being cut."""
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
    assert talk.budget.free == BUDGET_BYTES, "memory of a connection that is gone"
    assert talk.conversation.next_reply() is None
    assert request(2, NOW) not in talk.requests, "nobody is there to be answered"
