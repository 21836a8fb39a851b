"""Making a log durable in two halves, so that the slow one may run in a thread.

`Log.begin_flush` collects what must reach the disk; `FlushWork.sync` does the fsyncs and touches nothing but files;
`Log.finish_flush` believes it. A sync that failed is never tried again: the kernel may have marked the lost pages
clean, and a second fsync would lie (Rebello et al., ATC '20). A flush that had no room to begin with, or no descriptor
to sync with, has lost nothing: it is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.base.errors import StorageFault
from moldau.log.checkpoints import replace_file
from moldau.log.files import File, Files
from moldau.log.write_order import WriteOrder


@dataclass(slots=True)
class FlushWork:
    order: WriteOrder
    turn: int
    """Who cuts, cleans or closes a log does not wait for the flush that a thread is at or has yet to begin, but does
    all of it again: then there is nothing left to do for the thread, and what it was to write is old."""
    files_layer: Files
    directory: str
    up_to: int
    generation: int
    """Of the log when the work began; a truncation since then makes the work worthless."""
    active: File | None = None
    paths: list[str] = field(default_factory=list)
    """Files besides the active segment's. By name: a log that waits for a flush holds no descriptors for it."""
    checkpoints: list[tuple[str, bytes]] = field(default_factory=list)
    """(name, content) of files in the log's directory to be replaced."""
    directory_changed: bool = False
    is_new: bool = False
    """The directory itself was made since the last flush."""
    is_done: bool = False
    fault: StorageFault | None = None
    shortage: StorageFault | None = None
    """In place of a fault: what was lacking, when nothing can have been lost."""
    _has_begun: bool = False
    """To sync what was written before."""

    def sync(self) -> None:
        """Safe in a thread. Raises StorageFault; the log learns of it on its own the next time it is asked."""
        with self.order.at(self.turn) as is_due:
            if is_due:
                try:
                    self._sync()
                except StorageFault as fault:
                    if self._has_lost_nothing(fault):
                        self.shortage = fault
                    else:
                        self.fault = fault
                    raise
                self.order.done(self.turn)
        self.is_done = True
        self.active = None

    def _has_lost_nothing(self, fault: StorageFault) -> bool:
        return fault.lacks_descriptors or (fault.is_shortage and not self._has_begun)

    def _sync(self) -> None:
        for name, content in self.checkpoints:
            replace_file(self.files_layer, self.directory, name, content)
        self._has_begun = True
        for path in self.paths:
            self.files_layer.sync(path)
        if self.active is not None:
            self.active.sync()
        # Last: a name that survives a crash must lead to a file that is whole.
        if self.directory_changed:
            self.files_layer.sync_directory(self.directory)
        if self.is_new:
            self.files_layer.sync_directory(self.directory.rpartition("/")[0])
