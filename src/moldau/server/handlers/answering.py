"""What the APIs of coordinators have in common: a request is put to the shard it belongs to, and an error, now or
later, becomes an answer in the API's own form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.machine import Client
from moldau.server.router import Caller

R = TypeVar("R")


class Limit(NamedTuple):
    """How long all wait for the last, and what is said in place of an answer that is missing then, by its place."""

    timers: Timers
    wait_ms: int
    late: Callable[[int], Any]


def client_of(caller: Caller) -> Client:
    return Client(caller.client_id or "", "/" + caller.address.rpartition(":")[0].strip("[]"), caller.version)


def reply_or_error(call: Callable[[], R | Promise[R]], refusal: Callable[[KafkaError], R]) -> R | Promise[R]:
    """What `ask` gives or promises; a KafkaError, raised or come to, in the form `refusal` gives it."""
    try:
        answer = call()
    except KafkaError as refused:
        return refusal(refused)
    if isinstance(answer, Promise):
        return answer.map(lambda value: refusal(value) if isinstance(value, KafkaError) else value)
    return answer


def combine_replies(
    answers: list[Any], combine: Callable[[list[Any]], R], limit: Limit | None = None
) -> R | Promise[R]:
    """One answer made of several, when the last of them is there, or when time is up."""
    left = sum(isinstance(answer, Promise) for answer in answers)
    if not left:
        return combine(answers)
    whole: Promise[R] = Promise()
    values = list(answers)

    def arrived(place: int, value: Any) -> None:
        nonlocal left
        if whole.done:
            return
        values[place] = value
        left -= 1
        if not left:
            if timer is not None:
                timer.cancel()
            whole.complete(combine(values))

    def time_is_up() -> None:
        assert limit is not None
        told = [limit.late(place) if isinstance(value, Promise) else value for place, value in enumerate(values)]
        whole.complete(combine(told))

    timer = None if limit is None else limit.timers.after_ms(limit.wait_ms, time_is_up)

    for place, answer in enumerate(answers):
        if isinstance(answer, Promise):
            answer.then(partial(arrived, place))
    return whole
