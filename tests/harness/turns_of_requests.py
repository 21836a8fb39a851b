"""The cost of a request in each turn of the event loop, counted in executed lines of Python.

Work in threads (decoding a large request, encoding a long response) does not count: it does not block the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.operations import operations_of
from moldau.base.errors import StorageFault
from moldau.base.promise import Promise
from moldau.security.acls.access import UNRESTRICTED, Access
from moldau.server.router import Router
from moldau.testing.clock import FakeTimers
from moldau.wire.codec import Outgoing

TURNS_MAX = 5_000


class HeldThreads:
    """Holds work for threads until the test runs it."""

    def __init__(self) -> None:
        self._works: list[tuple[Callable[[], None], Promise[StorageFault | None]]] = []

    def __call__(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        done: Promise[StorageFault | None] = Promise()
        self._works.append((work, done))
        return done

    def run_next(self) -> Promise[StorageFault | None] | None:
        """Run the next work; return its promise, which the caller completes, or None if there is no work."""
        if not self._works:
            return None
        work, done = self._works.pop(0)
        work()
        return done


def turns_of(
    router: Router,
    timers: FakeTimers,
    frame: bytes,
    flush: Callable[[], None] = lambda: None,
    access: Access = UNRESTRICTED,
    operations_of: Callable[[Callable[[], object]], int] = operations_of,
) -> tuple[list[int], Outgoing]:
    """Return the lines of Python in each turn until the request is answered, and the reply."""
    threads = HeldThreads()
    router.run_in_thread = threads
    view = memoryview(bytearray(frame))[4:]
    replies: list[Outgoing | Promise[Outgoing] | None] = []
    turns = [operations_of(lambda: replies.append(router.answer("PLAINTEXT", "198.51.100.7:666", access, view)))]
    reply = replies[0]
    assert reply is not None
    while isinstance(reply, Promise) and not reply.done:
        done = threads.run_next()
        if done is not None:
            turns.append(operations_of(lambda: done.complete(None)))  # noqa: B023
        elif timers._soon:
            turns.append(operations_of(timers.run_one_soon))
        else:
            flush()
            if not timers._soon:
                turns.append(operations_of(timers.run_one_timer))
        assert len(turns) < TURNS_MAX, "the request is never answered"
    return turns, reply.value() if isinstance(reply, Promise) else reply
