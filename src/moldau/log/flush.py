"""Makes a log durable in three steps, so that the slow one can run in a thread.

`Flushing.begin` collects the files to sync; `FlushWork.sync` calls fsync and uses nothing but these files;
`Flushing.finish` moves the recovery point. A failed sync is never retried: the kernel may have marked the lost pages
clean, and a second fsync would succeed although they are not on disk (Rebello et al., ATC '20). A flush that had no
file descriptor, or had no space before its first sync, has lost nothing, and is retried.
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
    number: int
    """In `order`. A truncation, a cleaning or a close does not wait for a flush in a thread, but flushes everything
    itself. The thread then finds that its number is outdated, and does nothing."""
    files_layer: Files
    directory: str
    up_to: int
    generation: int
    """The log's generation when the flush began. If it has changed, the log was truncated and the flush is ignored."""
    active: File | None = None
    paths: list[str] = field(default_factory=list)
    """Files besides the active segment's. Paths, not open files, so that a waiting flush needs no descriptors."""
    checkpoints: list[tuple[str, bytes]] = field(default_factory=list)
    """(name, content) of files in the log's directory to be replaced."""
    directory_changed: bool = False
    is_new: bool = False
    """The directory itself was created since the last flush, so its parent must be synced too."""
    is_done: bool = False
    fault: StorageFault | None = None
    shortage: StorageFault | None = None
    """Set instead of `fault` when space or file descriptors were lacking before anything could be lost."""
    _has_begun: bool = False
    """Whether the first sync was called."""

    def sync(self) -> None:
        """Sync everything; may run in a thread. Raise StorageFault; the log reads `fault` the next time it is used."""
        with self.order.at(self.number) as is_due:
            if is_due:
                try:
                    self._sync()
                except StorageFault as fault:
                    if self._has_lost_nothing(fault):
                        self.shortage = fault
                    else:
                        self.fault = fault
                    raise
                self.order.done(self.number)
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
        # Sync the directory last: a name that survives a crash must belong to a complete file.
        if self.directory_changed:
            self.files_layer.sync_directory(self.directory)
        if self.is_new:
            self.files_layer.sync_directory(self.directory.rpartition("/")[0])


class Flushing:
    """The files of a log that are not synced yet, and the flush that is under way."""

    __slots__ = (
        "_directory", "_epochs", "_files", "_flushed_ms", "_is_new", "_segments", "_under_way", "_unsynced",
        "_write_order", "directory_changed", "lacked_room", "recovery_point",
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
        """Files were created, renamed or removed: the next flush has to sync the directory."""
        self._is_new = is_new
        """The name of the directory itself may not be on disk yet."""
        self._write_order = WriteOrder()
        self._under_way: FlushWork | None = None
        self.lacked_room = False
        """Whether the last flush failed for lack of space or descriptors."""
        self._flushed_ms = now_ms

    @property
    def fault(self) -> StorageFault | None:
        """Why the flush under way failed; None if it did not fail."""
        return None if self._under_way is None else self._under_way.fault

    @property
    def has_unsynced_files(self) -> bool:
        return bool(self._unsynced)

    @property
    def has_unwritten_epochs(self) -> bool:
        work = self._under_way
        return self._epochs.is_dirty or (work is not None and not work.is_done and bool(work.checkpoints))

    def add(self, paths: Iterable[str]) -> None:
        """Add new files that the next flush has to sync."""
        self._unsynced += paths
        self.directory_changed = True

    def is_due(self, end_offset: int, config: LogConfig, now_ms: int) -> bool:
        """Return whether to flush now, by `flush.messages` and `flush.ms`; rolled segments are flushed at once. The
        time counts from when a flush was last due or there was nothing to flush."""
        unflushed = end_offset - self.recovery_point
        by_time = now_ms - self._flushed_ms >= config.flush_ms
        if by_time or not unflushed or now_ms < self._flushed_ms:  # the clock may have been set back
            self._flushed_ms = now_ms
        return bool(self._unsynced) or unflushed >= config.flush_messages or (by_time and unflushed > 0)

    def begin(self, end_offset: int, generation: int) -> FlushWork | None:
        """Return the work that makes the log durable up to its end, None if it is durable already."""
        self._take_over(self._under_way)
        pending = self._unsynced or self.directory_changed or self._epochs.is_dirty
        if self.recovery_point == end_offset and not pending:
            return None
        active = self._segments.active
        try:
            active_file = active.file  # first: it may have to be opened, and that may fail
            active.txn_index.write()
        except StorageFault as fault:
            self.lacked_room = fault.is_shortage
            raise
        order = self._write_order
        work = FlushWork(order, order.take(), self._files, self._directory, end_offset, generation)
        if self._epochs.is_dirty:
            work.checkpoints.append((layout.LEADER_EPOCH_CHECKPOINT, self._epochs.encode()))
            self._epochs.is_dirty = False
        work.active = active_file
        work.paths = [*self._unsynced, *active.txn_index.take_unsynced()]
        work.directory_changed, work.is_new = self.directory_changed, self._is_new
        self._unsynced, self.directory_changed, self._is_new = [], False, False
        self._under_way = work
        return work

    def _take_over(self, work: FlushWork | None) -> None:
        """Put the files of an unfinished flush back: the next flush syncs them, because nobody waits for that one."""
        if work is None or work.is_done:
            return
        self._unsynced = [*work.paths, *self._unsynced]
        self.directory_changed |= work.directory_changed
        self._is_new |= work.is_new
        self._epochs.is_dirty |= bool(work.checkpoints)

    def finish(self, work: FlushWork, generation: int) -> None:
        """Move the recovery point if the work is done and the log was not truncated meanwhile. Files that could not be
        synced for lack of space or file descriptors are left for the next flush."""
        if self._under_way is work and (work.is_done or work.shortage is not None):
            self._take_over(work)
            self._under_way = None
            self.lacked_room = work.shortage is not None
        if work.is_done and work.generation == generation:
            self.recovery_point = max(self.recovery_point, work.up_to)

    def truncate(self, end_offset: int) -> None:
        """Lower the recovery point after a truncation. Rolled segments that are not synced yet stay in the list,
        because the recovery point will move past them."""
        self.recovery_point = min(self.recovery_point, end_offset)
        self.directory_changed = True
