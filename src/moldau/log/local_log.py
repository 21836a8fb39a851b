"""The body of a log: its segments, epochs, producers and offsets, and what is done to them to keep them.

Rolling, flushing, retention, cutting, closing. What enters and what leaves is log.py's, and how a log is compacted is
compacted_log.py's; both build on this.
Times, high watermarks and threads are handed in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.ids import TopicPartition
from moldau.log import layout
from moldau.log.cleaning.swap import SwapWork
from moldau.log.config import LogConfig
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import Files
from moldau.log.flush import FlushWork
from moldau.log.producers import Producers
from moldau.log.rebuild import reload_producers, write_snapshot
from moldau.log.retention import expired_count
from moldau.log.segment import RELATIVE_OFFSET_MAX, Segment
from moldau.log.segments import Segments
from moldau.log.write_order import WriteOrder
from moldau.wire.crc import crc32c

ALL_FILES: Final = (*layout.SEGMENT_FILES, layout.SNAPSHOT)


class LocalLog:
    def __init__(
        self,
        files: Files,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: Producers,
        *,
        start_offset: int,
        end_offset: int,
        recovery_point: int,
        now_ms: int,
        unsynced: Iterable[str] = (),
        is_new: bool = False,
    ) -> None:
        assert start_offset <= end_offset, "a log begins before it ends"
        assert recovery_point <= end_offset, "what is not there cannot be durable"
        self.partition = partition
        self.directory = directory
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        """Everything below is on disk for certain."""
        self.cleaned_up_to = 0
        """Below it no key has two records, as far as the cleaner remembers."""
        self._files = files
        self._refusal: Exception | None = None
        self._generation = 0
        self._unsynced = list(unsynced)
        """Paths of files besides the active segment's that the next flush has to sync."""
        self._directory_changed = bool(self._unsynced)
        self._is_new = is_new
        """The directory's own name may not be on disk yet."""
        self._write_order = WriteOrder()
        self._flushing: FlushWork | None = None
        self._swapping: SwapWork | None = None
        self._flushed_ms = now_ms
        self._settled = (end_offset, 0) if recovery_point == end_offset and not self._unsynced else None
        """(end, generation) of which the side files on disk speak; a log that is still there need not be closed."""
        self._deletable: list[tuple[int, str]] = []
        """(when, path) of files renamed away that are to be unlinked."""
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._jitter_ms = self._jitter()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def last_epoch(self) -> int:
        return self.epochs.latest

    @property
    def generation(self) -> int:
        """Another one after every cut."""
        return self._generation

    @property
    def fault(self) -> Exception | None:
        """Why the log takes no more writes: a disk that lied, or the log is gone. None while it does."""
        return self._refusal

    # --- roll ---------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begins a new segment, unless the active one is still empty."""
        if self.segments.active.size:
            self._roll_to(self.end_offset, now_ms)

    def _roll_for(self, base_offset: int, last_offset: int, now_ms: int) -> Segment:
        """A segment begins where the one before it ends, even if a follower's next batch lies further on: so recovery
        knows a tail that was lost from an offset that never was. Only a leap too far for the indexes is taken."""
        is_leap = last_offset - self.end_offset > RELATIVE_OFFSET_MAX
        return self._roll_to(base_offset if is_leap else self.end_offset, now_ms)

    def _roll_to(self, base_offset: int, now_ms: int) -> Segment:
        old = self.segments.active
        if not old.size:
            return self._move_empty_segment(old, base_offset, now_ms)
        snapshot = write_snapshot(self._files, self.directory, self.end_offset, self.producers)
        indexes = old.seal()
        segment = Segment.create(self._files, self.directory, base_offset, now_ms)
        self.segments.add(segment)
        self._unsynced += [old.log_path, snapshot, *indexes, *old.txn_index.take_unsynced()]
        self._directory_changed = True
        self._jitter_ms = self._jitter()
        return segment

    def _move_empty_segment(self, old: Segment, base_offset: int, now_ms: int) -> Segment:
        """The first batch of an empty log may lie too far ahead for the segment that waits for it."""
        if base_offset == old.base_offset:
            return old
        segment = Segment.create(self._files, self.directory, base_offset, now_ms)
        if len(self.segments) > 1:
            self.segments.drop_last()
            self.segments.add(segment)
        else:
            self.segments.replace_all(segment)
            self.start_offset = base_offset
        self._unlink_segment(old)
        self._directory_changed = True
        return segment

    def _jitter(self) -> int:
        """Spreads the rolls of many partitions over time. By name, not by chance: a restart must not move it."""
        if self.config.segment_jitter_ms <= 0:
            return 0
        seed = f"{self.partition} {self.segments.active.base_offset}".encode()
        return crc32c(seed) % min(self.config.segment_jitter_ms, self.config.segment_ms)

    # --- flush --------------------------------------------------------------------------------------------------

    def flush_due(self, now_ms: int) -> bool:
        """By `flush.messages` and `flush.ms`, counted from when it was last due or clean; rolled segments at once."""
        unflushed = self.end_offset - self.recovery_point
        by_time = now_ms - self._flushed_ms >= self.config.flush_ms
        if by_time or not unflushed or now_ms < self._flushed_ms:  # the clock may have been put back
            self._flushed_ms = now_ms
        return bool(self._unsynced) or unflushed >= self.config.flush_messages or (by_time and unflushed > 0)

    def begin_flush(self) -> FlushWork | None:
        """All that must be synced for the log to be durable up to its end, None if it is so already."""
        self._notice_failed_flush()
        if self._refusal is not None:
            raise self._refusal
        self._take_over(self._flushing)
        pending = self._unsynced or self._directory_changed or self.epochs.is_dirty
        if self.recovery_point == self.end_offset and not pending:
            return None
        work = FlushWork(
            self._write_order, self._write_order.take(), self._files, self.directory, self.end_offset, self._generation
        )
        if self.epochs.is_dirty:
            work.checkpoints.append((layout.LEADER_EPOCH_CHECKPOINT, self.epochs.encode()))
            self.epochs.is_dirty = False
        active = self.segments.active
        work.paths = [*self._unsynced, *active.txn_index.take_unsynced()]
        work.active = active.file
        work.directory_changed = self._directory_changed
        work.is_new = self._is_new
        self._is_new = False
        self._unsynced = []
        self._directory_changed = False
        self._flushing = work
        return work

    def _take_over(self, under_way: FlushWork | None) -> None:
        """Another flush may not have got to its files yet, and who closes or cleans the log does not wait for it: what
        it has taken is done once more."""
        if under_way is None or under_way.is_done:
            return
        self._unsynced = [*under_way.paths, *self._unsynced]
        self._directory_changed |= under_way.directory_changed
        self._is_new |= under_way.is_new
        self.epochs.is_dirty |= bool(under_way.checkpoints)

    def finish_flush(self, work: FlushWork) -> None:
        """Believes a work that was synced. A log that was cut meanwhile does not. One for which there was no room is
        still to be done."""
        self._notice_failed_flush()
        if self._flushing is work and (work.is_done or work.shortage is not None):
            self._take_over(work)
            self._flushing = None
        if work.is_done and work.generation == self._generation:
            self.recovery_point = max(self.recovery_point, work.up_to)

    def flush(self) -> None:
        work = self.begin_flush()
        if work is None:
            return
        try:
            work.sync()
        finally:
            self.finish_flush(work)

    def _notice_failed_flush(self) -> None:
        if self._flushing is not None and self._flushing.fault is not None:
            self._refusal = self._flushing.fault

    # --- retention ----------------------------------------------------------------------------------------------

    def delete_expired(self, now_ms: int, high_watermark: int) -> list[Segment]:
        """Takes the oldest segments out of the log if their time has come; their files go after a delay."""
        count = expired_count(
            self.segments,
            self.config,
            now_ms,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            high_watermark=high_watermark,
        )
        if count == len(self.segments) and not self._try_roll(now_ms):
            count -= 1
        if not count:
            return []
        self._take_back_swap()
        dropped = self.segments.drop_first(count)
        self._move_start(self.segments.first.base_offset)
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in dropped:
            self._mark_for_deletion(segment, due_ms)
        return dropped

    def _try_roll(self, now_ms: int) -> bool:
        """Whether that worked: on a full disk the active segment stays, so that all others can make room."""
        try:
            self.roll(now_ms)
        except StorageFault as fault:
            if not fault.is_shortage:
                raise
            return False
        return True

    def delete_records(self, before_offset: int) -> None:
        """Moves the start of the log up; segments wholly below it go with the next `delete_expired`."""
        if not 0 <= before_offset <= self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{before_offset} is not an offset of {self.partition}.")
        self._move_start(before_offset)

    def take_deletable(self, now_ms: int) -> list[str]:
        """Files whose delay is over, for whoever asks to unlink: of a large one that takes a good part of a second."""
        due = [path for due_ms, path in self._deletable if due_ms <= now_ms]
        # Where the clock was put back, nothing waits for longer than the delay, as seen from now.
        latest_ms = now_ms + self.config.file_delete_delay_ms
        self._deletable = [(min(due_ms, latest_ms), path) for due_ms, path in self._deletable if due_ms > now_ms]
        return due

    def purge(self, now_ms: int) -> int:
        """Unlinks them here and now; returns how many are still waiting."""
        for path in self.take_deletable(now_ms):
            self._files.unlink(path)
        return len(self._deletable)

    def _move_start(self, offset: int) -> None:
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)

    def _mark_for_deletion(self, segment: Segment, due_ms: int, suffixes: Iterable[str] = ALL_FILES) -> None:
        """Renamed at once, so that no restart takes it for part of the log; unlinked later, for those still reading."""
        for suffix in suffixes:
            path = segment.path + suffix
            if self._files.exists(path):
                self._files.rename(path, path + layout.DELETED)
                self._deletable.append((due_ms, path + layout.DELETED))
        self._directory_changed = True

    def _take_back_swap(self) -> None:
        """Before anything is taken out of the log: a swap that is not finished would bring it back."""
        if self._swapping is not None:
            self._swapping.take_back()
            self._swapping = None

    def _unlink_segment(self, segment: Segment) -> None:
        for suffix in layout.SEGMENT_FILES:
            self._files.unlink(segment.path + suffix)

    # --- cut ----------------------------------------------------------------------------------------------------

    def end_after_cut(self, offset: int) -> int:
        """Where the log will end if cut at `offset`: at the start of the batch that holds it."""
        if offset < self.segments.first.base_offset:
            return offset
        return self.segments.at(self.segments.floor(offset)).end_if_cut(offset)

    def truncate_to(self, offset: int) -> None:
        """Cuts off `offset` and all after it; the batch that holds it goes whole, and the log then ends before that.

        Whoever keeps recovery points on disk must lower them first: `LogStore.truncate` does.
        """
        if offset >= self.end_offset:
            # A leader notes its epoch before it writes: if it never did, others know nothing of that epoch.
            self.epochs.truncate_from_end(offset)
            return
        if offset < self.segments.first.base_offset:
            self.truncate_fully(offset)
            return
        self._generation += 1
        self._take_back_swap()
        while self.segments.active.base_offset >= offset and len(self.segments) > 1:
            self._unlink_segment(self.segments.drop_last())
        # Before anything new is written: a segment that a crash brought back would stand behind other records.
        self._files.sync_directory(self.directory)
        self.end_offset = self.segments.active.truncate(offset)
        try:
            # Nor may what was cut come back: it would pass for what all replicas have, once the log is as long again.
            self.segments.active.file.sync()
        except StorageFault as fault:
            self._refusal = fault
            raise
        finally:
            self._after_cut()

    def truncate_fully(self, offset: int) -> None:
        """Forgets everything and begins anew at `offset`: for a follower whose leader has nothing older."""
        self._generation += 1
        self._take_back_swap()
        created_ms = self.segments.active.created_ms
        for segment in reversed(list(self.segments)):
            self._unlink_segment(segment)
        for name in self._files.names(self.directory):
            # What producers had done by then says nothing of what they have done where the log begins anew.
            if name.endswith(layout.SNAPSHOT):
                self._files.unlink(f"{self.directory}/{name}")
        self._files.sync_directory(self.directory)
        fresh = Segment.create(self._files, self.directory, offset, created_ms)
        self.segments.replace_all(fresh)
        self.start_offset = self.end_offset = offset
        self._after_cut()

    def _after_cut(self) -> None:
        self.start_offset = min(self.start_offset, self.end_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        self.cleaned_up_to = min(self.cleaned_up_to, self.end_offset)
        # What was rolled before the cut and not synced yet still has to be: the recovery point will move past it.
        self._directory_changed = True
        self.epochs.truncate_from_end(self.end_offset)
        names = self._files.names(self.directory)
        reload_producers(self.producers, self._files, self.directory, names, self.segments, self.end_offset)

    # --- end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leaves everything on disk as a quick start wants it. A log that failed is left for recovery instead."""
        self._notice_failed_flush()
        if self._refusal is not None:
            raise self._refusal
        if self._is_blank:
            # Nothing would be lost with it, and to sync it costs as much as to sync any other.
            self.refuse(StorageFault(self.directory, OSError("the log is closed")))
            return
        if self._settled != (self.end_offset, self._generation):
            snapshot = write_snapshot(self._files, self.directory, self.end_offset, self.producers)
            self._unsynced += [snapshot, *self.segments.active.seal()]
            self._directory_changed = True
        self.flush()
        self.segments.active.release()
        self.refuse(StorageFault(self.directory, OSError("the log is closed")))

    @property
    def _is_blank(self) -> bool:
        """Whether nothing was ever written here."""
        return not self.end_offset and not self._generation

    def refuse(self, reason: Exception) -> None:
        """Takes no more writes."""
        self._refusal = reason

    def retire(self) -> None:
        """The partition is deleted: whoever still holds the log is told so."""
        self.refuse(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.partition} is deleted."))
