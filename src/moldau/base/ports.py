"""What a node is given by whoever runs it, as far as it needs no type of another package; `assembly/world` has all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moldau.base.errors import StorageFault
from moldau.base.promise import Promise

RunInThread = Callable[[Callable[[], None]], Promise[StorageFault | None]]
"""Runs work that takes long, or waits for the disk, in a thread. The promise is completed on the event loop, with the
StorageFault of the work if it failed; any other exception of the work stops the node."""
RunAll = Callable[[Iterable[Callable[[], None]]], None]
"""Runs all calls, perhaps side by side in threads. Returns when all have ended; raises the error of one that failed."""
DiskSpace = Callable[[], tuple[int, int]]
"""(total, usable) bytes of the volume the data directory is on."""


def run_one_by_one(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()
