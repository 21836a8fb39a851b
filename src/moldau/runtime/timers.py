"""Timers of the asyncio loop, with the interface that the pure packages use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.base.clock import Timer


class LoopTimers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, call)
