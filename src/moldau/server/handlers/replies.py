"""What handlers share: a long request handled in turns of the event loop or with work in threads, an error, raised or
promised, turned into a response of the API, and several replies combined into one.

A handler returns what these functions return: the response, a promise of it, or, after more than one turn, a
`LongReply`, behind which `Conversation` holds back the later requests of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from time import perf_counter
from typing import Any, NamedTuple, TypeVar, cast

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError, MalformedData
from moldau.base.long_work import LongWork
from moldau.base.loop_watch import name_of
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, WaitingSteps, split
from moldau.runtime.internal_errors import closing_error
from moldau.server.conversation import LongReply
from moldau.server.late_replies import complete_long, pass_on

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
P = TypeVar("P")


class TimeLimit(NamedTuple):
    """How long to wait for the last reply. `late_reply` returns what replaces a missing reply, by its index."""

    timers: Timers
    wait_ms: int
    late_reply: Callable[[int], Any]


def reply_or_error(call: Callable[[], R | Promise[R]], error_response: Callable[[KafkaError], R]) -> R | Promise[R]:
    """Return the result or promise of `call`; turn a KafkaError, raised or promised, into `error_response(error)`."""
    try:
        reply = call()
    except KafkaError as error:
        return error_response(error)
    return reply_when_ready(reply, error_response) if isinstance(reply, Promise) else reply


def reply_when_ready(reply: Promise[R], error_response: Callable[[KafkaError], R]) -> Promise[R]:
    """Return the same promise with a KafkaError turned into `error_response(error)`."""
    return reply.map(lambda value: error_response(value) if isinstance(value, KafkaError) else value)


def when_decided(reply: S | Promise[S], next_step: Callable[[S], R | Promise[R]]) -> R | Promise[R]:
    """Return `next_step(value)` for the reply of a coordinator. A KafkaError in a promise is passed on."""
    if not isinstance(reply, Promise):
        return next_step(reply)
    return reply.and_then(lambda value: cast(R, value) if isinstance(value, KafkaError) else next_step(value))


def item_count(lists: Iterable[Sequence[object]]) -> int:
    """Return how many items all lists have; an empty one counts too, since it takes time."""
    lengths = list(map(len, lists))
    return sum(lengths) + lengths.count(0)


def in_turns(
    timers: Timers,
    items: Sequence[T],
    handle: Callable[[T], Any],
    combine: Callable[[list[Any]], R],
    items_a_turn: int,
    limit: TimeLimit | None = None,
) -> R | Promise[R]:
    """Call `handle` for each item of a request, and combine the replies. No more than `items_a_turn` are handled in one
    turn of the loop, so that a long request does not hold up everybody else. Later requests of the same connection
    wait until all items are handled."""
    if len(items) <= items_a_turn:
        return combine_replies([handle(item) for item in items], combine, limit)

    def steps() -> Steps[R | Promise[R]]:
        replies: list[Any] = []
        for first in range(0, len(items), items_a_turn):
            if first:
                yield
            replies += [handle(item) for item in items[first : first + items_a_turn]]
        return combine_replies(replies, combine, limit)

    steps.__qualname__ = name_of(handle)
    return run_steps(timers, steps())


def uneven_in_turns(
    timers: Timers,
    items: Sequence[T],
    handle: Callable[[T], tuple[Any, int]],
    combine: Callable[[list[Any]], R],
    parts_a_turn: int,
) -> R | Promise[R]:
    """Like `in_turns` for items that may be large. `handle` returns the reply and the number of parts, such as members
    of a group, that it handled; a turn ends after the item with which it has handled `parts_a_turn` of them."""

    def steps() -> Steps[R | Promise[R]]:
        replies: list[Any] = []
        turn = TurnItems(parts_a_turn)
        is_over = False
        for item in items:
            if is_over:
                yield
            reply, count = handle(item)
            replies.append(reply)
            is_over = turn.ends_after(count)
        return combine_replies(replies, combine)

    steps.__qualname__ = name_of(handle)
    return run_steps(timers, steps())


def partitions_in_turns(
    timers: Timers,
    topics: Sequence[S],
    prepare: Callable[[S], tuple[T, Sequence[P]]],
    handle: Callable[[T, P], Any],
    combine: Callable[[list[list[Any]]], R | Promise[R]],
    partitions_a_turn: int,
    count: int,
) -> R | Promise[R]:
    """Like `in_turns` for a request that names partitions by topic, `count` of them in all. `prepare` returns what
    `handle` needs of a topic, and its partitions; `combine` gets the results of each topic."""
    if count <= partitions_a_turn:
        prepared = map(prepare, topics)
        return combine([[handle(topic, partition) for partition in partitions] for topic, partitions in prepared])

    def steps() -> Steps[R | Promise[R]]:
        results: list[list[Any]] = []
        turn = TurnItems(partitions_a_turn)
        for each in topics:
            topic, partitions = prepare(each)
            of_topic: list[Any] = []
            for some in split(partitions, partitions_a_turn) if partitions else ((),):
                of_topic += [handle(topic, partition) for partition in some]
                if turn.ends_after(len(some)):
                    yield
            results.append(of_topic)
        return combine(results)

    steps.__qualname__ = name_of(handle)
    return run_steps(timers, steps())


def run_steps(timers: Timers, steps: WaitingSteps[R | Promise[R]]) -> R | Promise[R]:
    """Run a request's steps, each in a turn of the loop. The first runs at once; if it is the only one, its result is
    returned. Later requests of the same connection wait until the last step has run, and those of a long reply that it
    returns. An unexpected exception closes the connection: the router sees to that in the first turn."""
    try:
        awaited = next(steps)
    except StopIteration as done:
        result: R | Promise[R] = done.value
        return result
    long_reply = LongReply()

    def on_fault(fault: Exception) -> None:
        error = closing_error(fault, f"{name_of(steps)} failed in a later turn")
        if not long_reply.handled.done:
            long_reply.handled.complete(None)
        if not long_reply.done:
            long_reply.complete(error)

    _MeasuredWork(long_reply, timers.soon, steps, partial(complete_long, long_reply), on_fault).go_on_after(awaited)
    return long_reply


class _MeasuredWork(LongWork[R]):
    """Adds the time that the turns take, and the work in threads, to that of a reply."""

    def __init__(self, reply: LongReply, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reply = reply

    def _step(self, steps: WaitingSteps[R]) -> Promise[float] | None:
        began_s = perf_counter()
        try:
            return next(steps)
        finally:
            self._reply.took_s += perf_counter() - began_s

    def _on_awaited(self, took_s: float) -> None:
        self._reply.took_s += took_s
        super()._on_awaited(took_s)


def steps_when_ready(timers: Timers, reply: Promise[S], steps: Callable[[S], Steps[R | Promise[R]]]) -> Promise[R]:
    """Return the result of a request's last steps, which begin when a reply is there. Later requests of the same
    connection do not wait for it. An unexpected exception in any of them closes the connection: whoever completes the
    reply has no part in it."""
    long_reply = LongReply()
    long_reply.handled.complete(None)

    def begin(value: S) -> None:
        result: R | Promise[R] | MalformedData
        try:
            result = run_steps(timers, steps(value))
        except Exception as fault:
            result = closing_error(fault, f"{name_of(steps)} failed after a reply")
        pass_on(result, long_reply)

    reply.then(begin)
    return long_reply


def combine_replies(
    replies: list[Any], combine: Callable[[list[Any]], R], limit: TimeLimit | None = None
) -> R | Promise[R]:
    """Combine several replies into one when the last of them is ready, or when the time limit is reached. One that
    closes the connection is the reply to all of them, and so is an unexpected exception in `combine`."""
    missing = sum(map(isinstance, replies, repeat(Promise)))
    if not missing:
        return combine(replies)
    combined: Promise[Any] = Promise()
    values = list(replies)

    def finish(collect: Callable[[], list[Any]]) -> None:
        try:
            response: R | MalformedData = combine(collect())
        except Exception as fault:  # whoever completes the last reply goes on with those of others
            response = closing_error(fault, f"{name_of(combine)} failed after its replies")
        combined.complete(response)

    def on_reply(index: int, value: Any) -> None:
        nonlocal missing
        if combined.done:
            return
        values[index] = value
        missing -= 1
        is_closing = isinstance(value, MalformedData)
        if is_closing or not missing:
            if timer is not None:
                timer.cancel()
            if is_closing:
                combined.complete(value)
            else:
                finish(lambda: values)

    def on_timeout() -> None:
        assert limit is not None
        late_reply = limit.late_reply
        finish(
            lambda: [late_reply(index) if isinstance(value, Promise) else value for index, value in enumerate(values)]
        )

    timer = None if limit is None else limit.timers.after_ms(limit.wait_ms, on_timeout)

    for index, reply in enumerate(replies):
        if isinstance(reply, Promise):
            reply.then(partial(on_reply, index))
    return combined
