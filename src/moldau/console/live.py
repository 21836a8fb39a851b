"""The streams of the pages, which tell what changed.

A feed is asked in a thread what is new. Feeds of the collector are asked after each of its rounds; those of live
records and of the page Learn have no collector and wait for up to a second themselves, in threads of their own (tails).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import StreamingResponse

from moldau.console.collector.collector import Collector
from moldau.console.daemon_pool import Threads
from moldau.console.next_steps import API_ERRORS
from moldau.web.daemon_pool import DaemonPool
from moldau.web.failures import too_many
from moldau.web.responses import json_bytes
from moldau.web.streams import EventStreams, Source, StreamLimits, frame

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


class Streams:
    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._tail_threads = DaemonPool(TAILS_MAX, "tail")
        self._tails = 0
        limits = StreamLimits(STREAMS_MAX, STREAM_SECONDS_MAX, ALIVE_EVERY_SECONDS)
        self._events = EventStreams(limits, API_ERRORS, "live pages")
        self.stop, self.wake = self._events.stop, self._events.wake

    def close(self) -> None:
        """When the server has stopped."""
        self._tail_threads.shutdown(wait=False, cancel_futures=True)

    def response(self, feed: Feed, may_go_on: Callable[[], bool] = lambda: True) -> StreamingResponse:
        """Return the stream of a feed; it ends when `may_go_on` is false, as after a logout."""
        is_tail = feed.collector is None
        if is_tail and self._tails >= TAILS_MAX:
            raise too_many(f"{TAILS_MAX} live views of records are open, which is the most; close one")
        rounds = _Rounds(feed, self._threads)
        listeners = set() if feed.collector is None else feed.collector.listeners

        def on_end() -> None:
            self._tails -= is_tail
            listeners.discard(rounds.on_round)
            if not self._events.stopping:
                self._tail_threads.submit(feed.close)

        response = self._events.response(self._tail(feed) if is_tail else rounds.next, may_go_on, on_end)
        self._tails += is_tail
        listeners.add(rounds.on_round)
        return response

    def _tail(self, feed: Feed) -> Source:
        def frames() -> list[bytes]:
            return [frame(name, json_bytes(content)) for name, content in feed.poll()]

        async def wait_for_records() -> list[bytes]:
            return await asyncio.get_running_loop().run_in_executor(self._tail_threads, frames)

        return wait_for_records


class _Rounds:
    """What a feed of the collector has after each of its rounds: the events that differ from the last of their kind."""

    def __init__(self, feed: Feed, threads: Threads) -> None:
        self._feed, self._threads = feed, threads
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._last_sent: dict[str, bytes] = {}
        self._asked = False

    def on_round(self) -> None:
        """Called in the thread of the collector."""
        self._loop.call_soon_threadsafe(self._news.set)

    async def next(self) -> list[bytes]:
        if self._asked:
            await self._pause()
        self._asked = True
        self._news.clear()  # before the feed is asked: what is published from now on wakes it again
        frames: list[bytes] = await self._threads.run(False, self._changed)
        return frames

    def _changed(self) -> list[bytes]:
        changed = []
        for name, content in self._feed.poll():
            data = json_bytes(content)
            if self._last_sent.get(name) != data:
                self._last_sent[name] = data
                changed.append(frame(name, data))
        return changed

    async def _pause(self) -> None:
        await asyncio.sleep(EVENTS_EVERY_SECONDS)
        try:
            async with asyncio.timeout(ALIVE_EVERY_SECONDS):
                await self._news.wait()
        except TimeoutError:
            return
