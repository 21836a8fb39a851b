"""Logs calls that held up the event loop, at most one line a second.

A call also takes long if others have the processors meanwhile. That is the machine's fault and no warning: the time for
which the loop's thread was ready to run and did not is subtracted. A call that waits for a disk or a lock is not ready
to run, so its time counts in full.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from moldau.base.clock import Clock
from moldau.base.loop_watch import VERY_LONG_CALL_S, LoopWatch

log = logging.getLogger("moldau.node")
LINE_EVERY_MS: Final = 1_000


class SlowCalls:
    """Logs the very long calls of a watch.

    `run_queue_wait_s` is asked at each `mark`, and otherwise only after a very long call. What the thread has waited
    since the mark is the most that the call can have waited, so marks come several times a second.
    """

    def __init__(self, watch: LoopWatch, clock: Clock, run_queue_wait_s: Callable[[], float | None]) -> None:
        self._clock = clock
        self._run_queue_wait_s = run_queue_wait_s
        self._marked_s = run_queue_wait_s()
        self._next_line_ms = self._unlogged = 0
        watch.on_very_long = self._on_very_long

    def mark(self) -> None:
        self._marked_s = self._run_queue_wait_s()

    def _waited_since_mark_s(self) -> float:
        now_s = self._run_queue_wait_s()
        return 0.0 if now_s is None or self._marked_s is None else now_s - self._marked_s

    def _on_very_long(self, what: str, took_s: float) -> None:
        waited_s = min(took_s, self._waited_since_mark_s())
        if took_s - waited_s <= VERY_LONG_CALL_S:
            log.debug("%s took %.0f ms, %.0f of them without a free processor", what, took_s * 1000, waited_s * 1000)
            return
        if self._clock.monotonic_ms() < self._next_line_ms:
            self._unlogged += 1
            return
        waited = f", {waited_s * 1000:.0f} of them without a free processor" if waited_s >= 0.001 else ""
        others = f"; {self._unlogged} other calls since the last line" if self._unlogged else ""
        log.warning("%s held up the event loop for %d ms%s%s", what, took_s * 1000, waited, others)
        self._next_line_ms, self._unlogged = self._clock.monotonic_ms() + LINE_EVERY_MS, 0
