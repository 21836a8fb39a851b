"""Runs the steps of TLS handshakes in threads of their own: one takes one to three milliseconds, in which OpenSSL does
not need the interpreter. Clients that all reconnect at once, or hostile ones, do not stop the others, and another core
can do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from moldau.base.limits import HANDSHAKE_THREADS

Step = Future[None]


class Handshakes:
    """Steps wait for a thread in the order in which they came. The threads are started when they are needed."""

    __slots__ = ("_loop", "_threads")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(HANDSHAKE_THREADS, "moldau-tls-handshake")

    def run(self, step: Callable[[], None], then: Callable[[Step], None]) -> Step:
        """Run `step` in a thread, and then call `then` on the loop, also if the step was cancelled."""
        running = self._threads.submit(step)
        running.add_done_callback(partial(self._hand_over, then))
        return running

    def close(self) -> None:
        """Let the threads end. Steps that were not cancelled are still run."""
        self._threads.shutdown(wait=False)

    def _hand_over(self, then: Callable[[Step], None], step: Step) -> None:
        with suppress(RuntimeError):  # the loop is closed: the connection is too
            self._loop.call_soon_threadsafe(then, step)
