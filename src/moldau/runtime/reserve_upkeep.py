"""Fills the reserve on the disk, in a thread: for the first time a moment after the start, then whenever some of it was
given back and there is room again.
"""

from __future__ import annotations

import logging
from typing import Final

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.errors import StorageFault
from moldau.base.ports import RunInThread
from moldau.log.reserve import Reserve
from moldau.runtime.fault_log import FaultLog

log = logging.getLogger("moldau.housekeeping")
FILL_MS: Final = 5_000


class ReserveUpkeep:
    def __init__(self, reserve: Reserve, run_in_thread: RunInThread, timers: Timers, clock: Clock) -> None:
        self._reserve = reserve
        self._run_in_thread = run_in_thread
        self._timers = timers
        self._report = FaultLog(log.warning, clock)
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        self._timer = self._timers.after_ms(FILL_MS, self._fill)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _fill(self) -> None:
        was_short = self._reserve.is_short
        self._run_in_thread(self._reserve.fill).then(lambda fault: self._filled(fault, was_short))

    def _filled(self, fault: StorageFault | None, was_short: bool) -> None:
        """A disk that refuses this does not stop the node: it only has less in reserve."""
        if fault is not None:
            self._report("the reserve is not filled, retried later", fault)
        elif was_short and not self._reserve.is_short:
            log.info("there is room on the disk again: the reserve is whole")
        if not self._is_stopped:
            self.start()
