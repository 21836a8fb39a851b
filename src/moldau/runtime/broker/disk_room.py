"""Finds out whether this broker's disk refuses writes, so that brokers whose disks accept them can take over.

A refused write says little: the batch may have been large, or the space may be back. So a little later a thread tries
to write a file and removes it again: the size of the disk does not show quotas. While the disk refuses that, the thread
tries once a second. It has to find much more space than before, so that a broker does not go back and forth over the
last megabyte.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from random import Random
from typing import Final

from moldau.base.clock import Timer
from moldau.base.errors import StorageFault
from moldau.base.ports import DiskSpace, RunInThread
from moldau.log.files import Files, write_all
from moldau.replica.faults import ReportFault
from moldau.runtime.own_work import OwnWork

log = logging.getLogger("moldau.lifecycle")
PROBE_FILE: Final = ".moldau_disk_probe"
FIRST_PROBE_MS: Final = 200
"""From the refused write to the first attempt."""
PROBE_INTERVAL_MS: Final = 1_000
PROBE_BYTES: Final = 1 << 20
"""As many as Kafka's largest batch by default. A disk with less space left counts as full."""
ROOM_PIECES: Final = 4
"""How many times as much must be written before a full disk counts as usable again."""
ROOM_SHARE: Final = 100
ROOM_BYTES_MAX: Final = 1 << 30
"""A full disk must also have one part in `ROOM_SHARE` free, but no more than this."""


class DiskRoom:
    """Reports storage faults to the node's log like `report`, and acts on them. `on_change` is called when the disk
    refuses writes, or accepts them again."""

    def __init__(
        self,
        report: ReportFault,
        files: Files,
        directory: str,
        disk_space: DiskSpace,
        run_in_thread: RunInThread,
        own_work: OwnWork,
        on_change: Callable[[bool], None],
    ) -> None:
        self._report = report
        self._files = files
        self._path = f"{directory}/{PROBE_FILE}"
        self._disk_space = disk_space
        self._run_in_thread = run_in_thread
        self._own_work = own_work
        self._on_change = on_change
        self._is_full = self._is_probing = self._is_closed = False
        self._timer: Timer | None = None
        """For the next attempt, or for the end of a pause after one that succeeded."""

    def __call__(self, what: str, fault: StorageFault) -> None:
        """A read or write failed. `what` names the thing that is affected and what cannot be done."""
        self._report(what, fault)
        if not fault.lacks_descriptors and not self._is_probing and self._timer is None and not self._is_closed:
            self._timer = self._own_work.after_ms(FIRST_PROBE_MS, self._probe)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _probe(self) -> None:
        self._timer = None
        self._is_probing = True
        attempt = self._try_room if self._is_full else self._try_to_write
        self._run_in_thread(attempt).then(self._own_work.guard(self._on_probed))

    def _on_probed(self, fault: StorageFault | None) -> None:
        self._is_probing = False
        if self._is_closed:
            return
        is_full = self._is_full if fault is not None and fault.lacks_descriptors else fault is not None
        self._timer = self._own_work.after_ms(PROBE_INTERVAL_MS, self._probe if is_full else self._end_pause)
        if is_full != self._is_full:
            self._is_full = is_full
            if is_full:
                log.error("the disk refuses writes (%s): brokers that can write take over, if there are any", fault)
            else:
                log.info("the disk accepts writes again: this broker catches up and may lead")
            self._on_change(is_full)

    def _end_pause(self) -> None:
        self._timer = None

    # --- in a thread --------------------------------------------------------------------------------------------

    def _try_to_write(self, pieces: int = 1) -> None:
        """Write a file and remove it. Raise StorageFault if the disk refuses it."""
        content = Random(0).randbytes(PROBE_BYTES)  # which no file system can compress
        file = self._files.open(self._path, create=True)
        try:
            for piece in range(pieces):
                write_all(file, content, piece * PROBE_BYTES)
        finally:
            file.truncate(0)
            self._files.unlink(self._path)

    def _try_room(self) -> None:
        """Raise StorageFault if the disk is still full, or nearly."""
        total, usable = self._disk_space()
        if usable < min(total // ROOM_SHARE, ROOM_BYTES_MAX):
            raise StorageFault(self._path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._try_to_write(ROOM_PIECES)
