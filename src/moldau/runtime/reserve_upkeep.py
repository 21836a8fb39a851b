"""Fills the reserve on the disk: when the node starts, and in a thread when some of it was given back and there is room
again.
"""

from __future__ import annotations

import logging
from typing import Final

from moldau.base.clock import Clock, Timer
from moldau.base.errors import StorageFault
from moldau.base.ports import RunInThread
from moldau.log.reserve import Reserve
from moldau.runtime.fault_log import FaultLog
from moldau.runtime.own_work import OwnWork

log = logging.getLogger("moldau.housekeeping")
LOOK_MS: Final = 5_000
NOT_FILLED: Final = "the reserve is not filled, retried later"


class ReserveUpkeep:
    def __init__(self, reserve: Reserve, run_in_thread: RunInThread, own_work: OwnWork, clock: Clock) -> None:
        self._reserve = reserve
        self._run_in_thread = run_in_thread
        self._own_work = own_work
        self._report = FaultLog(log.warning, clock)
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Fill it now, and look every few seconds whether some is missing. The first time takes no thread: the node
        serves nobody yet."""
        try:
            self._reserve.fill()
        except StorageFault as fault:
            self._report(NOT_FILLED, fault)
        self._look_later()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        if not self._is_stopped:
            self._timer = self._own_work.after_ms(LOOK_MS, self._look)

    def _look(self) -> None:
        if self._reserve.is_short:
            self._run_in_thread(self._reserve.fill).then(self._own_work.guard(self._filled))
        else:
            self._look_later()

    def _filled(self, fault: StorageFault | None) -> None:
        """A disk that refuses this does not stop the node: it only has less in reserve."""
        if fault is not None:
            self._report(NOT_FILLED, fault)
        elif not self._reserve.is_short:
            log.info("there is room on the disk again: the reserve is whole")
        self._look_later()
