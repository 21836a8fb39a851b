"""Replies that are not ready when the handler returns: to large requests, which are decoded in a thread, and to long
ones, which are handled in several turns.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.limits import SCRATCH_BYTES
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.server.conversation import LongReply, Reply
from moldau.wire.codec import Decoder, Outgoing, Refusal
from moldau.wire.schema import Message


def reply_when_decoded(
    run_in_thread: RunInThread,
    decode: Decoder,
    frame: memoryview,
    position: int,
    handle: Callable[[Message | Exception, float], Reply],
) -> LongReply:
    """Decode a request in a thread. Call `handle` with it, or with the fault, and with the seconds that this took, on
    the loop; what it returns is the reply."""
    reply, size = LongReply(), len(frame)
    owned = memoryview(bytearray(frame)) if size <= SCRATCH_BYTES else frame
    """A small frame is in a buffer that all connections share; a larger one has a buffer of its own."""
    request: Message | Exception = ValueError("nothing was decoded")
    took_s = 0.0

    def work() -> None:
        nonlocal request, took_s
        began_s = thread_time()
        try:
            request, _ = decode(owned, position, size)
        except Exception as error:  # it must not leave the thread: that would stop the node
            request = error
        took_s = thread_time() - began_s

    def on_decoded(_: object) -> None:
        try:
            framed = handle(request, took_s)
        except MalformedData as error:
            framed = Refusal(str(error))
        complete_long(reply, framed)

    run_in_thread(work).then(on_decoded)
    return reply


def complete_long(reply: LongReply, result: Any) -> None:
    """Complete a long reply with what a handler returned: a value or a promise."""
    if isinstance(result, LongReply):
        result.handled.then(reply.handled.complete)
    else:
        reply.handled.complete(None)
    pass_on(result, reply)


def pass_on(result: Any, reply: LongReply) -> None:
    """Complete a long reply with a result, now or when it is there; its `handled` is left to the caller. If the result
    is a LongReply too, the time that it took is added."""

    def complete(value: Any) -> None:
        if isinstance(result, LongReply):
            reply.took_s += result.took_s
        reply.complete(value)

    if isinstance(result, Promise):
        result.then(complete)
    else:
        complete(result)


def map_long_reply(reply: LongReply, change: Callable[[Any], Any]) -> LongReply:
    """Return a long reply with what `change` returns for the value of this one, now or later."""
    changed = LongReply()
    reply.handled.then(changed.handled.complete)

    def on_value(value: Any) -> None:
        changed.took_s += reply.took_s
        try:
            result = change(value)
        except KafkaError as error:
            result = error
        pass_on(result, changed)

    reply.then(on_value)
    return changed


def framed_when_ready(response: Promise[Any], frame: Callable[[Any], Outgoing]) -> Promise[Outgoing]:
    """Return what `frame` returns for the response, when it is there. `frame` must not raise; unlike that of a `map`,
    it also gets the MalformedData that closes the connection."""
    framed: Promise[Outgoing] = Promise()
    response.then(lambda value: framed.complete(frame(value)))
    return framed


def frame_by(run_in_thread: RunInThread, frame: Callable[[], Outgoing]) -> Promise[Outgoing]:
    """Return what `frame` returns, which is called in a thread."""
    framed = Outgoing()

    def work() -> None:
        nonlocal framed
        framed = frame()

    return run_in_thread(work).map(lambda _: framed)
