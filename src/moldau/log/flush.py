"""A log is made durable in two halves, so that the slow one may run in a thread.

`Flushing.begin` collects what must reach the disk; `FlushWork.sync` calls fsync and touches nothing but files;
`Flushing.finish` moves the recovery point. A sync that failed is never tried again: the kernel may have marked the lost
pages clean, and a second fsync would lie (Rebello et al., ATC '20). A flush that found no space or no file descriptor
before its first sync has lost nothing: it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from moldau.base.errors import StorageFault
from moldau.log import layout
from moldau.log.checkpoints import replace_file
from moldau.log.config import LogConfig
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import File, Files
from moldau.log.segments import Segments
from moldau.log.write_order import WriteOrder


@dataclass(slots=True)
class FlushWork:
    order: WriteOrder
    turn: int
    """A truncation, a cleaning or a close does not wait for a flush in a thread, but flushes everything itself. The
    thread then finds that its turn is void, and does nothing."""
    files_layer: Files
    directory: str
    up_to: int
    generation: int
    """Of the log when the work began; after a truncation the work counts for nothing."""
    active: File | None = None
    paths: list[str] = field(default_factory=list)
    """Files besides the active segment's. Paths, not open files: a log that waits for a flush holds no descriptors."""
    checkpoints: list[tuple[str, bytes]] = field(default_factory=list)
    """(name, content) of files in the log's directory to be replaced."""
    directory_changed: bool = False
    is_new: bool = False
    """The directory itself was made since the last flush."""
    is_done: bool = False
    fault: StorageFault | None = None
    shortage: StorageFault | None = None
    """Set instead of `fault` when space or descriptors were lacking before anything could be lost."""
    _has_begun: bool = False
    """Whether the first sync was called."""

    def sync(self) -> None:
        """Sync everything; may run in a thread. Raises StorageFault; the log sees `fault` the next time it is used."""
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
        # Last: a name that survives a crash must lead to a whole file.
        if self.directory_changed:
            self.files_layer.sync_directory(self.directory)
        if self.is_new:
            self.files_layer.sync_directory(self.directory.rpartition("/")[0])


class Flushing:
    """What of a log has yet to reach the disk, and the flush that is under way."""

    __slots__ = (
        "_directory", "_epochs", "_files", "_flushed_ms", "_is_new", "_segments", "_under_way", "_unsynced",
        "_write_order", "directory_changed", "recovery_point",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        directory: str,
        segments: Segments,
        epochs: LeaderEpochs,
        *,
        recovery_point: int,
        now_ms: int,
        unsynced: Iterable[str],
        is_new: bool,
    ) -> None:
        self.recovery_point = recovery_point
        """Everything below is on disk."""
        self._files = files
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._unsynced = list(unsynced)
        """Paths of files besides the active segment's that the next flush has to sync."""
        self.directory_changed = bool(self._unsynced)
        """Files were made, renamed or removed: the next flush has to sync the directory."""
        self._is_new = is_new
        """The name of the directory itself may not be on disk yet."""
        self._write_order = WriteOrder()
        self._under_way: FlushWork | None = None
        self._flushed_ms = now_ms

    @property
    def fault(self) -> StorageFault | None:
        """Why the flush under way failed, None if it did not."""
        return None if self._under_way is None else self._under_way.fault

    @property
    def has_unsynced_files(self) -> bool:
        return bool(self._unsynced)

    def add(self, paths: Iterable[str]) -> None:
        """The next flush has to sync these new files too."""
        self._unsynced += paths
        self.directory_changed = True

    def is_due(self, end_offset: int, config: LogConfig, now_ms: int) -> bool:
        """By `flush.messages` and `flush.ms`, counted from when it was last due or clean; rolled segments at once."""
        unflushed = end_offset - self.recovery_point
        by_time = now_ms - self._flushed_ms >= config.flush_ms
        if by_time or not unflushed or now_ms < self._flushed_ms:  # the clock may have been put back
            self._flushed_ms = now_ms
        return bool(self._unsynced) or unflushed >= config.flush_messages or (by_time and unflushed > 0)

    def begin(self, end_offset: int, generation: int) -> FlushWork | None:
        """All that must be synced for the log to be durable up to its end, None if it is so already."""
        self._take_over(self._under_way)
        pending = self._unsynced or self.directory_changed or self._epochs.is_dirty
        if self.recovery_point == end_offset and not pending:
            return None
        order = self._write_order
        work = FlushWork(order, order.take(), self._files, self._directory, end_offset, generation)
        if self._epochs.is_dirty:
            work.checkpoints.append((layout.LEADER_EPOCH_CHECKPOINT, self._epochs.encode()))
            self._epochs.is_dirty = False
        active = self._segments.active
        work.active = active.file
        work.paths = [*self._unsynced, *active.txn_index.take_unsynced()]
        work.directory_changed, work.is_new = self.directory_changed, self._is_new
        self._unsynced, self.directory_changed, self._is_new = [], False, False
        self._under_way = work
        return work

    def _take_over(self, work: FlushWork | None) -> None:
        """Sync again what a flush that is not done has taken: nobody waits for it."""
        if work is None or work.is_done:
            return
        self._unsynced = [*work.paths, *self._unsynced]
        self.directory_changed |= work.directory_changed
        self._is_new |= work.is_new
        self._epochs.is_dirty |= bool(work.checkpoints)

    def finish(self, work: FlushWork, generation: int) -> None:
        """Move the recovery point if the work is done and the log was not truncated meanwhile. What lacked space is
        left for the next flush."""
        if self._under_way is work and (work.is_done or work.shortage is not None):
            self._take_over(work)
            self._under_way = None
        if work.is_done and work.generation == generation:
            self.recovery_point = max(self.recovery_point, work.up_to)

    def truncate(self, end_offset: int) -> None:
        """The log was truncated. What was rolled before and is not synced still has to be: the recovery point will move
        past it."""
        self.recovery_point = min(self.recovery_point, end_offset)
        self.directory_changed = True
