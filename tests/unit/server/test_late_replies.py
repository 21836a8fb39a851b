"""`map_long_reply`: the value of the mapped reply, and the time that is charged for it."""

from __future__ import annotations

from moldau.server.conversation import LongReply
from moldau.server.late_replies import map_long_reply


def test_a_mapped_reply_is_charged_the_time_of_both_replies() -> None:
    first, second = LongReply(), LongReply()
    first.took_s, second.took_s = 1.0, 2.0
    changed = map_long_reply(first, lambda value: second)
    first.handled.complete(None)
    first.complete("response")
    assert not changed.done
    second.took_s += 0.5
    second.complete("audited")
    assert (changed.value(), changed.took_s) == ("audited", 3.5)
    assert changed.handled.done


def test_a_reply_is_mapped_to_a_plain_value() -> None:
    reply = LongReply()
    changed = map_long_reply(reply, str.upper)
    reply.took_s = 1.0
    reply.complete("response")
    assert (changed.value(), changed.took_s) == ("RESPONSE", 1.0)
    assert not changed.handled.done
