"""Logs calls that held up the event loop, at most one line a second."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from moldau.base.clock import Clock
from moldau.base.loop_watch import LoopWatch

log = logging.getLogger("moldau.node")
LINE_EVERY_MS: Final = 1_000


def log_slow_calls(watch: LoopWatch, clock: Clock) -> None:
    watch.on_very_long = _logger(clock)


def _logger(clock: Clock) -> Callable[[str, float], None]:
    next_line_ms, unlogged = 0, 0

    def on_very_long(what: str, took_s: float) -> None:
        nonlocal next_line_ms, unlogged
        if clock.monotonic_ms() < next_line_ms:
            unlogged += 1
            return
        others = f"; {unlogged} other calls since the last line" if unlogged else ""
        log.warning("%s held up the event loop for %d ms%s", what, took_s * 1000, others)
        next_line_ms, unlogged = clock.monotonic_ms() + LINE_EVERY_MS, 0

    return on_very_long
