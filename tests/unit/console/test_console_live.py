"""Streams of events: what is published while a page is told of something else is told to it next."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from moldau.console import live
from moldau.console.daemon_pool import Threads
from moldau.console.live import Event, Feed, Streams


@pytest.mark.parametrize("moment", ["while it is asked", "while its event is sent", "in the pause"])
def test_what_is_published_meanwhile_is_told_next(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    monkeypatch.setattr(live, "ALIVE_EVERY_SECONDS", 10 * PATIENCE_S)
    monkeypatch.setattr(live, "EVENTS_EVERY_SECONDS", 0.01)
    collector: Any = SimpleNamespace(listeners=set())
    version = 1

    def publish() -> None:
        nonlocal version
        version += 1
        for listener in list(collector.listeners):
            listener()

    def poll() -> list[Event]:
        event = ("number", version)
        if moment == "while it is asked" and version == 1:
            publish()
        return [event]

    async def main() -> list[bytes]:
        events = streams.response(Feed(poll, collector)).body_iterator
        frames: list[Any] = []
        async for frame in events:
            frames.append(frame)
            if len(frames) == 3:
                break
            if len(frames) == 2 and moment == "while its event is sent":
                publish()
            if len(frames) == 2 and moment == "in the pause":
                asyncio.get_running_loop().call_soon(publish)
        streams.stop()
        return frames

    threads = Threads()
    streams = Streams(threads)
    try:
        frames = asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    finally:
        streams.close()
        threads.stop()
    assert frames[1:] == [b"event: number\ndata: 1\n\n", b"event: number\ndata: 2\n\n"]
