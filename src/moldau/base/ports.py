"""What a node is given by whoever runs it, as far as it needs no type of another package; `assembly/world` has all."""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.errors import StorageFault
from moldau.base.promise import Promise

RunInThread = Callable[[Callable[[], None]], Promise[StorageFault | None]]
"""Runs work that blocks on the disk in a thread; the promise is completed with its fault, if it failed."""
DiskSpace = Callable[[], tuple[int, int]]
"""(total, usable) bytes of the volume the data directory is on."""
