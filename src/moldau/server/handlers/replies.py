"""What handlers of coordinators' APIs share: turning an error, raised or promised, into a response of the API, and
combining several replies into one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.machine import Client
from moldau.server.router import Caller, LongReply

R = TypeVar("R")
T = TypeVar("T")


log = logging.getLogger("moldau.server")


class TimeLimit(NamedTuple):
    """How long to wait for the last reply. `late_reply` returns what replaces a missing reply, by its index."""

    timers: Timers
    wait_ms: int
    late_reply: Callable[[int], Any]


def client_of(caller: Caller) -> Client:
    return Client(caller.client_id or "", "/" + caller.address.rpartition(":")[0].strip("[]"), caller.version)


def reply_or_error(call: Callable[[], R | Promise[R]], error_response: Callable[[KafkaError], R]) -> R | Promise[R]:
    """Return the result or promise of `call`; turn a KafkaError, raised or promised, into `error_response(error)`."""
    try:
        reply = call()
    except KafkaError as error:
        return error_response(error)
    if isinstance(reply, Promise):
        return reply.map(lambda value: error_response(value) if isinstance(value, KafkaError) else value)
    return reply


def in_turns(
    timers: Timers,
    items: Sequence[T],
    handle: Callable[[T], Any],
    combine: Callable[[list[Any]], R],
    items_a_turn: int,
    limit: TimeLimit | None = None,
) -> R | Promise[R]:
    """Call `handle` for each item of a request, and combine the replies. No more than `items_a_turn` are handled in one
    turn of the loop, so that a long request does not hold up everybody else."""
    if len(items) <= items_a_turn:
        return combine_replies([handle(item) for item in items], combine, limit)
    long_reply = LongReply()
    replies: list[Any] = []

    def next_turn() -> None:
        first = len(replies)
        try:
            replies.extend([handle(item) for item in items[first : first + items_a_turn]])
            combined = None if len(replies) < len(items) else combine_replies(replies, combine, limit)
        except Exception:
            log.exception("a request of %d items failed", len(items))
            long_reply.complete(None)  # cannot be encoded, so the connection is closed
            return
        if combined is None:
            timers.soon(next_turn)
        elif isinstance(combined, Promise):
            combined.then(long_reply.complete)
        else:
            long_reply.complete(combined)

    next_turn()
    return long_reply


def combine_replies(
    replies: list[Any], combine: Callable[[list[Any]], R], limit: TimeLimit | None = None
) -> R | Promise[R]:
    """Combine several replies into one when the last of them is ready, or when the time limit is reached."""
    missing = sum(isinstance(reply, Promise) for reply in replies)
    if not missing:
        return combine(replies)
    combined: Promise[R] = Promise()
    values = list(replies)

    def on_reply(index: int, value: Any) -> None:
        nonlocal missing
        if combined.done:
            return
        values[index] = value
        missing -= 1
        if not missing:
            if timer is not None:
                timer.cancel()
            combined.complete(combine(values))

    def on_timeout() -> None:
        assert limit is not None
        all_replies = [
            limit.late_reply(index) if isinstance(value, Promise) else value for index, value in enumerate(values)
        ]
        combined.complete(combine(all_replies))

    timer = None if limit is None else limit.timers.after_ms(limit.wait_ms, on_timeout)

    for index, reply in enumerate(replies):
        if isinstance(reply, Promise):
            reply.then(partial(on_reply, index))
    return combined
