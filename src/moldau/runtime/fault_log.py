"""Tells of what the disk refuses without filling it: the first fault of a kind at once, then a count now and then.

A full disk or too many open files refuse thousands of requests a second, all for the same reason.
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
    untold: int = 0


class FaultLog:
    def __init__(self, tell: Callable[[str], None], clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._reported: dict[int | None, _Reported] = {}
        """By the number of the error."""

    def __call__(self, what: str, fault: StorageFault) -> None:
        """`what` begins with the thing that suffers, and says what cannot be done."""
        now_ms = self._clock.elapsed_ms()
        before = self._reported.get(fault.cause.errno)
        if before is not None and now_ms - before.at_ms < REPEAT_MS:
            before.untold += 1
            return
        more = f" ({before.untold} more like it before this one)" if before is not None and before.untold else ""
        step = f"; {fault.next_step}" if fault.next_step else ""
        self._reported[fault.cause.errno] = _Reported(now_ms)
        self._tell(f"{what}: {fault}{step}{more}")
