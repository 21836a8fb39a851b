"""Timers of the asyncio loop, with the interface that the pure packages use. Calls that take long are noted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from moldau.base.clock import Timer
from moldau.base.loop_watch import LONG_CALL_S, LOOP_WATCH


class LoopTimers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(_run, call)

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, _run, call)


def _run(call: Callable[[], None]) -> None:
    began_s = monotonic()
    call()
    took_s = monotonic() - began_s
    if took_s > LONG_CALL_S:
        LOOP_WATCH.note_call(call, took_s)
