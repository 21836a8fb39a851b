"""Server-Sent Events: streams that tell a client what is new, bounded in number and in time.

A stream asks its source for the next events while the client takes them: nothing is queued for a slow client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from moldau.web.failures import ApiErrors, too_many
from moldau.web.responses import json_bytes

RETRY: Final = b"retry: 2000\n\n"
"""How long a browser waits before it connects again."""
ALIVE: Final = b": alive\n\n"

Source = Callable[[], Coroutine[Any, Any, Sequence[bytes]]]
"""Waits for what is new and returns it as frames. It may return none: then it is called again."""


def frame(name: str, data: bytes) -> bytes:
    """Return an event. Its data have no line breaks: JSON has none."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    streams_max: int
    seconds_max: float
    """Of a stream. Then the client connects again."""
    alive_every_seconds: float
    """A stream that says nothing for longer says that it is alive: proxies close those that are silent."""


class EventStreams:
    """The open streams of a server."""

    def __init__(self, limits: StreamLimits, errors: ApiErrors, what: str) -> None:
        """`what` they are is said to one who wants one too many: "live pages"."""
        self._limits, self._errors, self._what = limits, errors, what
        self._open = 0
        self._wakers: set[asyncio.Event] = set()
        self.stopping = False

    def stop(self) -> None:
        """End all streams, so that the server can stop. A signal may interrupt anything: this takes no lock."""
        self.stopping = True
        self.wake()

    def wake(self) -> None:
        """Let all streams look whether they may go on."""
        for waker in self._wakers:
            waker.set()

    def response(
        self, source: Source, may_go_on: Callable[[], bool] = lambda: True, on_end: Callable[[], None] = lambda: None
    ) -> StreamingResponse:
        """Return the stream of a source; it ends when `may_go_on` is false, as after a logout."""
        if self._open >= self._limits.streams_max:
            raise too_many(f"{self._limits.streams_max} {self._what} are open, which is the most; close one")
        self._open += 1

        def ended() -> None:
            self._open -= 1
            on_end()

        return _EventStream(self._events(source, may_go_on), ended)

    async def _events(self, source: Source, may_go_on: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        waker = asyncio.Event()
        self._wakers.add(waker)
        coming: asyncio.Task[Sequence[bytes]] | None = None
        end = time.monotonic() + self._limits.seconds_max
        try:
            yield RETRY
            last_sent = time.monotonic()
            while not self.stopping and time.monotonic() < end and may_go_on():
                if coming is None:
                    coming = asyncio.create_task(source(), name="events")
                    coming.add_done_callback(lambda _: waker.set())
                await _wait(waker, last_sent + self._limits.alive_every_seconds - time.monotonic())
                frames: Sequence[bytes] = ()
                if coming.done():
                    done, coming = coming, None
                    try:
                        frames = done.result()
                    except Exception as error:
                        yield frame("problem", json_bytes(self._errors.of(error).body()))
                        return
                if frames:
                    yield b"".join(frames)
                    last_sent = time.monotonic()
                elif time.monotonic() - last_sent >= self._limits.alive_every_seconds:
                    yield ALIVE
                    last_sent = time.monotonic()
        finally:
            self._wakers.discard(waker)
            if coming is not None:
                coming.cancel()


async def _wait(waker: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waker.wait()
    except TimeoutError:
        return
    waker.clear()


class _EventStream(StreamingResponse):
    def __init__(self, events: AsyncGenerator[bytes, None], on_end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._events, self._on_end = events, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()
            self._on_end()
