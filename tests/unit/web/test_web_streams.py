"""Event streams: bounded in number and in time, nothing queued for a slow client, ended by a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from moldau.base.errors import ErrorCode, KafkaError
from moldau.web.failures import ApiError, ApiErrors
from moldau.web.streams import ALIVE, RETRY, EventStreams, StreamLimits, frame

ERRORS = ApiErrors("the server", str)
LIMITS = StreamLimits(streams_max=2, seconds_max=10 * PATIENCE_S, alive_every_seconds=10 * PATIENCE_S)
SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


def streams_with(limits: StreamLimits = LIMITS) -> EventStreams:
    return EventStreams(limits, ERRORS, "streams")


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main()

    asyncio.run(bounded())


class Silent:
    """A source without news."""

    def __init__(self) -> None:
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.asked = 0

    async def __call__(self) -> Sequence[bytes]:
        self.asked += 1
        self.begun.set()
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def never() -> Any:
    await asyncio.Event().wait()


async def ignore(message: Any) -> None:
    """A client that takes everything."""


def test_no_more_streams_than_allowed_and_ended_ones_make_room() -> None:
    async def main() -> None:
        streams, ended = streams_with(), []
        first = streams.response(Silent(), on_end=lambda: ended.append(1))
        streams.response(Silent())
        with pytest.raises(ApiError) as refused:
            streams.response(Silent())
        assert refused.value.status == 429
        assert refused.value.message == "2 streams are open, which is the most; close one"

        async def closed() -> Any:
            return {"type": "http.disconnect"}

        await first(SCOPE, closed, ignore)
        assert ended == [1]
        streams.response(Silent())

    run(main)


def test_a_silent_stream_says_that_it_is_alive() -> None:
    async def main() -> None:
        streams = streams_with(StreamLimits(1, LIMITS.seconds_max, alive_every_seconds=0.001))
        source = Silent()
        frames = aiter(streams.response(source).body_iterator)
        assert [await anext(frames) for _ in range(3)] == [RETRY, ALIVE, ALIVE]
        assert not source.cancelled.is_set(), "it goes on waiting"
        assert source.asked == 1

    run(main)


def test_a_client_that_goes_away_while_it_takes_nothing_ends_its_source() -> None:
    async def main() -> None:
        streams = streams_with(StreamLimits(1, LIMITS.seconds_max, alive_every_seconds=0.001))
        source, stalled, gone = Silent(), asyncio.Event(), asyncio.Event()

        async def slow(message: Any) -> None:
            if message.get("body") == ALIVE:
                stalled.set()
                await never()

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        response = streams.response(source)
        serving = asyncio.create_task(response(SCOPE, receive, slow))
        await stalled.wait()
        gone.set()
        await serving
        await source.cancelled.wait()

    run(main)


def test_a_stop_ends_a_stream_whose_source_waits() -> None:
    async def main() -> None:
        streams, source = streams_with(), Silent()
        asyncio.get_running_loop().call_later(0.01, streams.stop)
        assert [each async for each in streams.response(source).body_iterator] == [RETRY]
        await source.cancelled.wait()

    run(main)


def test_a_woken_stream_ends_if_it_may_not_go_on() -> None:
    async def main() -> None:
        streams, source, allowed = streams_with(), Silent(), [True]
        response = streams.response(source, may_go_on=lambda: allowed[0])
        serving = asyncio.create_task(response(SCOPE, never, ignore))
        await source.begun.wait()
        streams.wake()
        await asyncio.sleep(0)
        assert not serving.done()
        allowed[0] = False
        streams.wake()
        await serving

    run(main)


def test_a_stream_has_an_end() -> None:
    async def main() -> None:
        async def news() -> Sequence[bytes]:
            return [frame("n", b"1")]

        streams = streams_with(StreamLimits(1, 0.01, LIMITS.alive_every_seconds))
        frames = [each async for each in streams.response(news).body_iterator]
        assert frames[0] == RETRY

    run(main)


def test_the_source_is_not_asked_while_the_client_takes_nothing() -> None:
    """So nothing is kept for a slow client but what it is being sent."""

    async def main() -> None:
        asked, stalled, reads_on = [0], asyncio.Event(), asyncio.Event()

        async def news() -> Sequence[bytes]:
            asked[0] += 1
            return [frame("number", b"%d" % asked[0])]

        async def slow(message: Any) -> None:
            if b"number" in message.get("body", b""):
                stalled.set()
                await reads_on.wait()

        streams = streams_with()
        serving = asyncio.create_task(streams.response(news)(SCOPE, never, slow))
        await stalled.wait()
        streams.wake()
        for _ in range(20):
            await asyncio.sleep(0)
        assert asked == [1]
        streams.stop()
        reads_on.set()
        await serving

    run(main)


def test_an_error_of_the_source_is_the_last_event() -> None:
    async def main() -> None:
        async def fails() -> Sequence[bytes]:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

        frames = [each async for each in streams_with().response(fails).body_iterator]
        assert len(frames) == 2
        assert bytes(frames[1]).startswith(b'event: problem\ndata: {"error":{"code":"NOT_ALLOWED","message":"')

    run(main)
