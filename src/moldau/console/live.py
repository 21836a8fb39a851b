"""Server-Sent Events: streams that tell a page what changed, bounded in number and in time.

A feed is asked in a thread what is new. Feeds of the collector are asked after each of its rounds; those of live
records and of the page Learn have no collector and wait for up to a second themselves, in threads of their own (tails).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from moldau.console.collector.collector import Collector
from moldau.console.daemon_pool import DaemonPool
from moldau.console.failures import api_error, internal_error, too_many
from moldau.console.web import Threads

STREAMS_MAX: Final = 64
TAILS_MAX: Final = 12
"""Streams whose feed waits itself: each has a thread."""
ALIVE_EVERY_SECONDS: Final = 15.0
STREAM_SECONDS_MAX: Final = 1800.0
EVENTS_EVERY_SECONDS: Final = 0.4

Event = tuple[str, Any]


@dataclass(frozen=True)
class Feed:
    poll: Callable[[], list[Event]]
    """Returns what is new."""
    collector: Collector | None = None
    """Whose rounds to wait for; without it `poll` waits itself."""
    close: Callable[[], None] = lambda: None


class _EventStream(StreamingResponse):
    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


class Streams:
    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._tail_threads = DaemonPool(TAILS_MAX, "tail")
        self._open = 0
        self._tails = 0
        self._stopping = False
        self._wakers: set[asyncio.Event] = set()

    @property
    def count(self) -> int:
        return self._open

    def stop(self) -> None:
        """End all streams, so that the server can stop. A signal may interrupt anything: this takes no lock."""
        self._stopping = True
        self.wake()

    def close(self) -> None:
        """When the server has stopped."""
        self._tail_threads.shutdown(wait=False, cancel_futures=True)

    def wake(self) -> None:
        """Let all streams look whether they may go on."""
        for waker in self._wakers:
            waker.set()

    def response(self, feed: Feed, may_go_on: Callable[[], bool] = lambda: True) -> StreamingResponse:
        """Return the stream of a feed; it ends when `may_go_on` is false, as after a logout."""
        is_tail = feed.collector is None
        if self._open >= STREAMS_MAX:
            raise too_many(f"{STREAMS_MAX} live pages are open, which is the most; close one")
        if is_tail and self._tails >= TAILS_MAX:
            raise too_many(f"{TAILS_MAX} live views of records are open, which is the most; close one")
        self._open += 1
        self._tails += is_tail

        def on_end() -> None:
            self._open -= 1
            self._tails -= is_tail
            if not self._stopping:
                self._tail_threads.submit(feed.close)

        return _EventStream(self._events(feed, may_go_on), on_end)

    async def _events(self, feed: Feed, may_go_on: Callable[[], bool]) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        waker = asyncio.Event()
        self._wakers.add(waker)

        def wake() -> None:
            loop.call_soon_threadsafe(waker.set)

        if feed.collector is not None:
            feed.collector.listeners.add(wake)
        end = time.monotonic() + STREAM_SECONDS_MAX
        last_sent: dict[str, bytes] = {}
        last_alive = time.monotonic()
        try:
            yield b"retry: 2000\n\n"
            while not self._stopping and time.monotonic() < end and may_go_on():
                waker.clear()  # before the feed is asked: what is published from now on wakes it again
                try:
                    frames = await self._poll(feed, last_sent)
                except Exception as error:
                    known = api_error(error) or internal_error(error)
                    yield _frame("problem", _data(known.body()))
                    return
                if frames:
                    yield b"".join(frames)
                elif time.monotonic() - last_alive >= ALIVE_EVERY_SECONDS:
                    yield b": alive\n\n"
                    last_alive = time.monotonic()
                if feed.collector is not None:
                    await self._wait(waker)
        finally:
            self._wakers.discard(waker)
            if feed.collector is not None:
                feed.collector.listeners.discard(wake)

    async def _poll(self, feed: Feed, last_sent: dict[str, bytes]) -> list[bytes]:
        """Return the events that differ from the last of their kind, as frames."""

        def frames() -> list[bytes]:
            changed = []
            for name, content in feed.poll():
                data = _data(content)
                if feed.collector is None or last_sent.get(name) != data:
                    last_sent[name] = data
                    changed.append(_frame(name, data))
            return changed

        if feed.collector is not None:
            result: list[bytes] = await self._threads.run(False, frames)
            return result
        return await asyncio.get_running_loop().run_in_executor(self._tail_threads, frames)

    async def _wait(self, waker: asyncio.Event) -> None:
        if not self._stopping:
            await asyncio.sleep(EVENTS_EVERY_SECONDS)
        if self._stopping:
            return
        try:
            async with asyncio.timeout(ALIVE_EVERY_SECONDS):
                await waker.wait()
        except TimeoutError:
            return


def _data(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")


def _frame(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
