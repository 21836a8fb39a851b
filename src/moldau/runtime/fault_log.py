"""Logs storage faults without flooding the log: the first of each errno at once, then at most one line in ten seconds
with a count.

A full disk or too many open files can fail thousands of requests a second, all for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from moldau.base.clock import Clock
from moldau.base.errors import StorageFault

REPEAT_MS: Final = 10_000


@dataclass(slots=True)
class _Reported:
    at_ms: int
    unreported: int = 0


class FaultLog:
    def __init__(self, write_line: Callable[[str], None], clock: Clock) -> None:
        self._write_line = write_line
        self._clock = clock
        self._reported: dict[int | None, _Reported] = {}
        """By errno."""

    def __call__(self, what: str, fault: StorageFault) -> None:
        """Log a fault. `what` names the thing that is affected and what cannot be done."""
        now_ms = self._clock.monotonic_ms()
        last = self._reported.get(fault.cause.errno)
        if last is not None and now_ms - last.at_ms < REPEAT_MS:
            last.unreported += 1
            return
        more = f" ({last.unreported} more like it before this one)" if last is not None and last.unreported else ""
        step = f"; {fault.next_step}" if fault.next_step else ""
        self._reported[fault.cause.errno] = _Reported(now_ms)
        self._write_line(f"{what}: {fault}{step}{more}")
