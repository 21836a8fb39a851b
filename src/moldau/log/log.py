"""The append-only log of one partition: assigns offsets, appends batches, reads, rolls, flushes, truncates and deletes.

Its parts have their own modules: checks of a batch (validate.py), the state of its producer (producer_batches.py),
finding batches to read (reading.py), flushing (flush.py), files that are deleted after a delay (deletions.py).
recovery.py opens a log, compaction.py compacts it. The caller passes times and high watermarks, and owns all threads.
"""

from __future__ import annotations

import errno
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.steps import Steps
from moldau.log import layout, producer_batches, reading
from moldau.log.cleaning.swap import SwapWork
from moldau.log.config import LOG_APPEND_TIME, LogConfig
from moldau.log.deletions import Deletions
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import Files
from moldau.log.flush import Flushing, FlushWork
from moldau.log.opening import with_checked_records
from moldau.log.producers import CompletedTxn, Producers
from moldau.log.reading import Slice
from moldau.log.rebuild import (
    aborted_txn,
    reload_producers,
    replay_batch,
    search_ended,
    write_snapshot,
    write_snapshot_if_possible,
)
from moldau.log.retention import expired_count
from moldau.log.segment import RELATIVE_OFFSET_MAX, Segment
from moldau.log.segments import Segments
from moldau.log.time_search import InThread, TimeSearch, find_largest_timestamp, search_time
from moldau.log.txn_index import AbortedTxn
from moldau.log.validate import LENGTH_PREFIX_BYTES, HeaderFields, Origin, check_batch
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, has_valid_crc, read_header, stamp_log_append_time

_STAMP: Final = struct.Struct(">qii")
"""Base offset, batch length and leader epoch. The batch length lies between the two others and is not changed."""

NO_LOG_APPEND_TIME: Final = -1
SEGMENT_AND_SNAPSHOT: Final = (*layout.SEGMENT_FILES, layout.SNAPSHOT)


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int = NO_LOG_APPEND_TIME
    duplicate: bool = False


_new_appended = partial(tuple.__new__, Appended)
"""Makes an Appended without its own constructor, whose cost every append would pay."""


class Log:
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
        self.files = files
        self.directory = directory
        self.partition = partition
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushing = Flushing(
            files, directory, segments, epochs,
            recovery_point=recovery_point, now_ms=now_ms, unsynced=unsynced, is_new=is_new,
        )  # fmt: skip
        self.cleaned_up_to = 0
        """The cleaner has compacted the log below this offset: no key has two records there."""
        self.swapping: SwapWork | None = None
        """Cleaned segments that are replacing old ones."""
        self.generation = 0
        """How often the log was truncated."""
        self.whole_below: int | None = None
        """Recovery found that records are missing from this offset on, and others follow: a follower fetches all of
        them again. None if nothing is missing."""
        self.fault: Exception | None = None
        """Why the log refuses writes: the disk failed, or the log is closed or deleted. None if it accepts them."""
        self._unfinished_truncation: tuple[StorageFault, Callable[[], None]] | None = None
        """The `fault` of a truncation that lacked space or descriptors, and what completes it."""
        self._deletions = Deletions(files)
        self._has_unwritten_start = False
        """Whether segments were deleted, and the leader epochs on disk may still begin with theirs."""
        self._has_aborted: bool | None = None
        """Whether this log may have aborted transactions; None until a reader asks. Most logs have none, and then no
        transaction index is read."""
        self._ended_search: tuple[int, Steps[list[CompletedTxn]]] | None = None
        """After a restart: the high watermark from which on it searches for ended transactions, and the search."""
        is_synced = recovery_point == end_offset and not self.flushing.has_unsynced_files
        self._sealed_at = (end_offset, 0) if is_synced else None
        """End offset and generation for which the snapshot and the indexes on disk are valid; None if they are not."""
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._jitter_ms = config.roll_jitter_ms(self.partition, self.segments.active.base_offset)
        self._stamps_time = config.message_timestamp_type == LOG_APPEND_TIME
        self._recompresses = config.target_compression is not None
        self._changes_batches = self._stamps_time or config.is_compacted or self._recompresses

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def last_epoch(self) -> int:
        return self.epochs.latest_epoch

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk."""
        return self.flushing.recovery_point

    # --- append -------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended:
        """Check one batch, write offset and epoch into its header in place, and append it. With `Origin.REPLICATION`,
        append any number of batches as they are.

        `transaction_version` is that of the transaction which a marker ends, or in which a client writes.
        Raise KafkaError for a batch that is refused, StorageFault if the disk fails. A batch is appended whole or not
        at all.
        """
        if self.fault is not None:
            self._complete_truncation()
        if origin is Origin.REPLICATION:
            return self._append_as_follower(batches, now_ms)
        fields = check_batch(batches, self.config, now_ms, origin)
        _, batch_length, _, _, _, _, last_offset_delta, _, max_timestamp, producer_id, _, _, _ = fields
        size = LENGTH_PREFIX_BYTES + batch_length
        batch = batches if len(batches) == size else batches[:size]
        log_append_time_ms = NO_LOG_APPEND_TIME
        if producer_id >= 0 and (origin is Origin.CLIENT or origin is Origin.OPENED):
            repeated = producer_batches.repetition_of(self.producers, self.segments, fields)
            if repeated is not None:
                stamped_ms = repeated.timestamp if self._stamps_time else NO_LOG_APPEND_TIME
                return Appended(repeated.first_offset, repeated.last_offset, stamped_ms, duplicate=True)
        if self._changes_batches:
            batch, fields, log_append_time_ms = self._change(batch, fields, now_ms, origin)
            batch_length, max_timestamp = fields[1], fields[8]
            size = len(batch)
        if size > self.config.segment_bytes:
            raise self._larger_than_segment(size)
        base_offset = self.end_offset
        last_offset = base_offset + last_offset_delta
        _STAMP.pack_into(batch, 0, base_offset, batch_length, leader_epoch)
        if producer_id < 0:
            self._store(batch, base_offset, last_offset, max_timestamp, leader_epoch, now_ms)
        else:
            marker = producer_batches.check(self.producers, batch, fields, origin, transaction_version)
            self._store(batch, base_offset, last_offset, max_timestamp, leader_epoch, now_ms)
            self._index_aborted(producer_batches.record(self.producers, fields, base_offset, marker))
        return _new_appended((base_offset, last_offset, log_append_time_ms, False))

    def _store(
        self, batch: memoryview, base_offset: int, last_offset: int, max_timestamp: int, leader_epoch: int, now_ms: int
    ) -> None:
        """Write a batch whose header is complete. Every append ends here."""
        config = self.config
        size = len(batch)
        segment = self.segments.active
        if segment.should_roll(size, last_offset, max_timestamp, now_ms, config, self._jitter_ms):
            segment = self._roll_for(base_offset, last_offset, now_ms)
        try:
            position = segment.write(batch)
        except StorageFault as fault:
            self._refuse_if_torn(segment, fault)
            raise
        segment.record_batch(base_offset, last_offset, max_timestamp, size, position, config.index_interval_bytes)
        self.end_offset = last_offset + 1
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)

    def _index_aborted(self, completed: CompletedTxn | None) -> None:
        """Add an aborted transaction to the index. Its marker is already in the log. If the index cannot be written for
        lack of space or file descriptors, the next flush or roll writes it. If the disk fails, the log refuses writes
        from now on, and recovery rebuilds the index."""
        if completed is None or not completed.aborted:
            return
        self._has_aborted = True
        try:
            self.segments.active.txn_index.append(aborted_txn(self.producers, completed))
        except StorageFault as fault:
            if not fault.is_shortage:
                self.fault = fault
                raise

    def _change(
        self, batch: memoryview, fields: HeaderFields, now_ms: int, origin: Origin
    ) -> tuple[memoryview, HeaderFields, int]:
        """Apply the topic's config: require keys, recompress, set the log append time. Return (batch, fields, time)."""
        is_unchecked = origin is Origin.CLIENT and self.config.is_compacted
        if is_unchecked or (self._recompresses and origin is not Origin.OPENED):
            batch = with_checked_records(batch, fields[5], self.config, now_ms, origin)
        if self._stamps_time:
            stamp_log_append_time(batch, now_ms)
        changed: HeaderFields = BATCH_HEADER.unpack_from(batch)
        return batch, changed, now_ms if self._stamps_time else NO_LOG_APPEND_TIME

    def _append_as_follower(self, batches: memoryview, now_ms: int) -> Appended:
        """Append a leader's batches unchanged. A fetch may cut off its last batch: the next fetch returns it whole."""
        first_offset = -1
        position = 0
        while len(batches) - position >= BATCH_HEADER_BYTES:
            header = read_header(batches, position)
            if header.size_in_bytes > len(batches) - position:
                break
            batch = batches[position : position + header.size_in_bytes]
            if header.size_in_bytes < BATCH_HEADER_BYTES or not has_valid_crc(batch):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A leader's batch at {header.base_offset} is broken.")
            if header.base_offset < self.end_offset or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"A leader sent offset {header.base_offset}, {self.end_offset} was to come.",
                )
            self._store(
                batch, header.base_offset, header.last_offset, header.max_timestamp, header.leader_epoch, now_ms
            )
            self._index_aborted(replay_batch(self.producers, header, partial(bytes, batch)))
            first_offset = header.base_offset if first_offset < 0 else first_offset
            position += header.size_in_bytes
        return Appended(first_offset, self.end_offset - 1)

    def _larger_than_segment(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The record batch has {size} bytes, a segment holds {self.config.segment_bytes}.",
        )

    def _refuse_if_torn(self, segment: Segment, fault: StorageFault) -> None:
        """After a failed write: if an incomplete batch is still in the file, refuse all further writes."""
        try:
            if segment.file.size() != segment.size:
                self.fault = fault
        except StorageFault:
            self.fault = fault

    # --- read ---------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, up_to: int, *, at_least_one: bool = True) -> Slice | None:
        """Return the batches from the one that contains `offset` up to the last one that ends below `up_to`; None if
        there is nothing to read.

        `max_bytes` may cut off the last batch, but never the first (KIP-74): if the first alone is longer, it is
        returned whole, or not at all without `at_least_one`. The slice ends with its segment.
        """
        end_offset = self.end_offset
        if offset > end_offset or offset < self.start_offset:
            raise self._out_of_range(offset)
        if up_to > end_offset:
            up_to = end_offset
        if offset >= up_to:
            return None
        segment = self.segments.active
        position, first_size = reading.quick_find(segment, offset) if offset >= segment.base_offset else (None, 0)
        try:
            if position is None:
                segment, position, first_size, limit = reading.find_batch(self.segments, offset, up_to, end_offset)
            elif up_to == end_offset:
                limit = segment.size
            else:
                limit = reading.position_of(segment, up_to)
            length = limit - position
            if length > max_bytes:
                length = reading.bounded_length(segment, position, first_size, length, max_bytes, at_least_one)
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if length <= 0:
            return None
        return reading.new_slice((segment.file, position, length, segment.hot.is_hot(position)))

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} is not within {self.start_offset}..{self.end_offset} of {self.partition}.",
        )

    def search_time(self, target_ms: int | None, in_thread: InThread) -> TimeSearch:
        """Search for the first record that is not older than `target_ms`; None: for the first with the largest
        timestamp. Batches are opened by `in_thread`. Raises MalformedData where the log is broken."""
        if target_ms is None:
            target_ms = yield from find_largest_timestamp(self.segments)
            if target_ms < 0:
                return None
        return (
            yield from search_time(
                self.segments, target_ms, self.start_offset, self.config.moldau_max_decompressed_bytes, in_thread
            )
        )

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction has ended and its marker is replicated.

        After a restart this may need reads of the log, a part in each call; until all is read, no record is known to
        be stable. Raise StorageFault if the disk fails, KafkaError if a batch is damaged.
        """
        producers = self.producers
        if high_watermark < producers.ended_known_from and not self._recall_ended(high_watermark):
            return min(self.start_offset, high_watermark)
        unstable = producers.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        # Retention may have deleted the first records of a transaction that is still open.
        return min(max(unstable, self.start_offset), high_watermark)

    def _recall_ended(self, high_watermark: int) -> bool:
        """Continue the search for transactions that ended above the high watermark before a restart. Return whether all
        are known now."""
        if self._ended_search is None or high_watermark < self._ended_search[0]:
            known_from = self.producers.ended_known_from
            search = search_ended(self.files, self.directory, self.segments, high_watermark, known_from)
        else:
            high_watermark, search = self._ended_search
        self._ended_search = None
        try:
            next(search)
        except StopIteration as done:
            self.producers.recall_ended(done.value, high_watermark)
            return True
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        self._ended_search = high_watermark, search
        return False

    def aborted_in(self, piece: Slice, offset: int, up_to: int) -> Sequence[AbortedTxn]:
        """Return the aborted transactions with records in a slice that was read from `offset`. The list may contain a
        few that begin just after the slice."""
        if not self._may_have_aborted:
            return ()
        after = reading.offset_after(self.segments, piece, offset, self.end_offset)
        return reading.aborted_between(self.segments, offset, min(up_to, after))

    def aborted_between(self, offset: int, up_to: int) -> Sequence[AbortedTxn]:
        """Return the aborted transactions with records in offset..up_to-1."""
        return reading.aborted_between(self.segments, offset, up_to) if self._may_have_aborted else ()

    @property
    def _may_have_aborted(self) -> bool:
        if self._has_aborted is None:
            self._has_aborted = any(segment.txn_index.transactions() for segment in self.segments)
        return self._has_aborted

    # --- roll ---------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is still empty."""
        if self.segments.active.size:
            self._roll_to(self.end_offset, now_ms)

    def _roll_for(self, base_offset: int, last_offset: int, now_ms: int) -> Segment:
        """Roll to a segment that begins where the previous one ends, even if a follower's next batch has a higher
        offset: recovery then knows that a gap between segments means lost records. Only a gap that is too wide for the
        indexes is skipped."""
        is_too_wide = last_offset - self.end_offset > RELATIVE_OFFSET_MAX
        return self._roll_to(base_offset if is_too_wide else self.end_offset, now_ms)

    def _roll_to(self, base_offset: int, now_ms: int) -> Segment:
        old = self.segments.active
        if not old.size:
            return self._move_empty_segment(old, base_offset, now_ms)
        snapshot = write_snapshot(self.files, self.directory, self.end_offset, self.producers)
        indexes = old.seal()
        old.txn_index.write()
        segment = Segment.create(self.files, self.directory, base_offset, now_ms)
        self.segments.add(segment)
        self.end_offset = base_offset
        self.flushing.add([old.log_path, snapshot, *indexes, *old.txn_index.take_unsynced()])
        self._jitter_ms = self.config.roll_jitter_ms(self.partition, base_offset)
        return segment

    def _move_empty_segment(self, old: Segment, base_offset: int, now_ms: int) -> Segment:
        """Replace an empty segment, because the next batch has an offset too high for its index. Return the new one."""
        if base_offset == old.base_offset:
            return old
        segment = Segment.create(self.files, self.directory, base_offset, now_ms)
        if len(self.segments) > 1:
            self.segments.drop_last()
            self.segments.add(segment)
        else:
            self.segments.replace_all(segment)
            self.start_offset = base_offset
        # Not only after the next batch is written: if that fails, the log must not end before its last segment begins.
        self.end_offset = base_offset
        self.flushing.directory_changed = True
        self._unlink_segment(old)
        return segment

    # --- flush --------------------------------------------------------------------------------------------------

    def flush_due(self, now_ms: int) -> bool:
        return self.flushing.is_due(self.end_offset, self.config, now_ms)

    def begin_flush(self) -> FlushWork | None:
        """Return the work that makes the log durable up to its end, None if it is durable already."""
        self._adopt_flush_fault()
        if self.fault is not None:
            raise self.fault
        return self.flushing.begin(self.end_offset, self.generation)

    def finish_flush(self, work: FlushWork) -> None:
        self._adopt_flush_fault()
        self.flushing.finish(work, self.generation)

    def flush(self) -> None:
        work = self.begin_flush()
        if work is None:
            return
        try:
            work.sync()
        finally:
            self.finish_flush(work)

    def _adopt_flush_fault(self) -> None:
        if self.flushing.fault is not None:
            self.fault = self.flushing.fault

    # --- retention ----------------------------------------------------------------------------------------------

    def delete_expired(self, now_ms: int, high_watermark: int, at_most: int = sys.maxsize) -> list[Segment]:
        """Remove the segments that retention has expired from the log, `at_most` so many, and return them. Their files
        are unlinked after a delay."""
        count = expired_count(
            self.segments,
            self.config,
            now_ms,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            high_watermark=high_watermark,
            at_most=at_most,
        )
        if count == len(self.segments) and not self._try_roll(now_ms):
            count -= 1
        if not count:
            return []
        self.roll_back_swap()
        due_ms = now_ms + self.config.file_delete_delay_ms
        dropped: list[Segment] = []
        for segment in list(self.segments)[:count]:
            # If the disk refuses this, the segment stays. Without a .log the next start removes its other files.
            self.mark_for_deletion(segment, due_ms, (layout.LOG,))
            dropped += self.segments.drop_first(1)
            self._move_start(self.segments.first.base_offset)
            self._has_unwritten_start = True
            self.mark_for_deletion(segment, due_ms)
        return dropped

    def _try_roll(self, now_ms: int) -> bool:
        """Roll, and return False if the disk is full: the active segment then stays, and only the others are
        deleted."""
        try:
            self.roll(now_ms)
        except StorageFault as fault:
            if not fault.is_shortage:
                raise
            return False
        return True

    def delete_records(self, before_offset: int) -> None:
        """Raise the log start offset. The next `delete_expired` removes the segments that are wholly below it."""
        if not 0 <= before_offset <= self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{before_offset} is not an offset of {self.partition}.")
        self._move_start(before_offset)

    def _move_start(self, offset: int) -> None:
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)

    def mark_for_deletion(self, segment: Segment, due_ms: int, suffixes: Iterable[str] = SEGMENT_AND_SNAPSHOT) -> None:
        self._deletions.mark([segment.path + suffix for suffix in suffixes], due_ms)
        self.flushing.directory_changed = True

    def note_marked(self, paths: Iterable[str], due_ms: int) -> None:
        """Note files that were renamed to be deleted."""
        self._deletions.renamed(paths, due_ms)
        self.flushing.directory_changed = True

    def take_deletable(self, now_ms: int) -> list[str]:
        """Return the files whose delay is over, for the caller to unlink: none before the leader epochs are written.
        Those of deleted records would tell the next start that these are missing. If they cannot be written, the old
        ones are removed: a start then reads the batches instead."""
        if self._has_unwritten_start and self.flushing.has_unwritten_epochs:
            if not self.flushing.lacked_room and self.fault is None:
                return []
            self.files.unlink(f"{self.directory}/{layout.LEADER_EPOCH_CHECKPOINT}")
        self._has_unwritten_start = False
        return self._deletions.take(now_ms, self.config.file_delete_delay_ms)

    def purge(self, now_ms: int) -> int:
        """Unlink the files whose delay is over; return how many are still waiting."""
        for path in self.take_deletable(now_ms):
            self.files.unlink(path)
        return len(self._deletions)

    def roll_back_swap(self) -> None:
        """Undo an unfinished swap. Called before segments are removed, because the swap would bring them back."""
        if self.swapping is not None:
            self.swapping.roll_back()
            self.swapping = None

    def _unlink_segment(self, segment: Segment) -> None:
        for suffix in layout.SEGMENT_FILES:
            self.files.unlink(segment.path + suffix)

    # --- truncate -----------------------------------------------------------------------------------------------

    def end_after_truncation(self, offset: int) -> int:
        """Return where the log will end if truncated to `offset`: at the start of the batch that contains it."""
        if offset < self.segments.first.base_offset:
            return offset
        return self.segments.at(self.segments.floor(offset)).end_after_truncation(offset)

    def truncate_to(self, offset: int) -> None:
        """Remove all records from `offset` on. The batch that contains `offset` is removed as a whole.

        The recovery point on disk must be lowered first: `LogStore.truncate` does this.
        """
        if offset >= self.end_offset:
            # A leader records its epoch before its first append: without an append, no other replica knows the epoch.
            self.epochs.truncate_from_end(offset)
            return
        if offset < self.segments.first.base_offset:
            self.truncate_fully(offset)
            return
        self.generation += 1
        self.roll_back_swap()
        try:
            while self.segments.active.base_offset >= offset and len(self.segments) > 1:
                segment = self.segments.drop_last()
                self.end_offset = segment.base_offset
                self._unlink_segment(segment)
            # Sync before new writes: else a crash could bring a removed segment back after newer records.
            self.files.sync_directory(self.directory)
            self.end_offset = self.segments.active.truncate(offset)
            # A crash must not bring removed records back either: once the log is as long again, they would look like
            # replicated ones.
            self.segments.active.file.sync()
        except MalformedData as error:
            raise self._broken(error) from error
        except StorageFault as fault:
            self._refuse_until_completed(fault, self._end_truncation)
            raise
        finally:
            self._after_truncation()
        self._accept_again()

    def _end_truncation(self) -> None:
        """Complete a truncation that failed half-way. The log ends where it should, or later: a follower then truncates
        it again."""
        self.files.sync_directory(self.directory)
        self.segments.active.file.sync()
        self._after_truncation()
        self._accept_again()

    def _refuse_until_completed(self, fault: StorageFault, complete: Callable[[], None]) -> None:
        """Refuse writes after a truncation that failed half-way. If it only lacked space or descriptors, the next write
        or truncation completes it."""
        if self.fault is None or self._truncation_to_complete() is not None:
            self.fault = fault
            self._unfinished_truncation = (fault, complete) if fault.is_shortage else None

    def _truncation_to_complete(self) -> Callable[[], None] | None:
        """Return what completes an unfinished truncation, unless the disk has failed since."""
        if self._unfinished_truncation is None:
            return None
        fault, complete = self._unfinished_truncation
        return complete if fault is self.fault else None

    def _complete_truncation(self) -> None:
        """Raise the fault, unless it is that of a truncation which can be completed now."""
        complete = self._truncation_to_complete()
        if complete is None:
            assert self.fault is not None
            raise self.fault
        complete()

    def _accept_again(self) -> None:
        if self._truncation_to_complete() is not None:
            self.fault = self._unfinished_truncation = None

    def truncate_fully(self, offset: int) -> None:
        """Remove all records and restart the log at `offset`: for a follower whose leader has no older records."""
        self.generation += 1
        self.roll_back_swap()
        created_ms = self.segments.active.created_ms
        try:
            # First: epochs of removed records would tell recovery that records are missing.
            self.files.unlink(f"{self.directory}/{layout.LEADER_EPOCH_CHECKPOINT}")
            for segment in reversed(list(self.segments)):
                self._unlink_segment(segment)
            for name in self.files.names(self.directory):
                # A snapshot describes the producers of the removed records.
                if name.endswith(layout.SNAPSHOT):
                    self.files.unlink(f"{self.directory}/{name}")
            self.files.sync_directory(self.directory)
            self.segments.replace_all(Segment.create(self.files, self.directory, offset, created_ms))
        except StorageFault as fault:
            # The files of the segments are removed: what is appended to them would be lost.
            self._refuse_until_completed(fault, partial(self.truncate_fully, offset))
            raise
        self.start_offset = self.end_offset = offset
        self.epochs.truncate_from_end(0)
        self._after_truncation()
        self._accept_again()

    def accept_gap(self) -> None:
        """Called when this node begins to lead the partition: what its log lacks is lost, and others copy it as it is.
        A truncation to the gap would remove records that are acknowledged later."""
        if self.whole_below is not None:
            self.whole_below = None
            self.epochs.truncate_from_start(self.start_offset)

    def _after_truncation(self) -> None:
        self.start_offset = min(self.start_offset, self.end_offset)
        self.cleaned_up_to = min(self.cleaned_up_to, self.end_offset)
        if self.whole_below is not None and self.end_offset <= self.whole_below:
            self.whole_below = None
        self.flushing.truncate(self.end_offset)
        self.epochs.truncate_from_end(self.end_offset)
        self._ended_search = None
        # Without its producers' state the log could not tell repeated batches and open transactions.
        try:
            names = self.files.names(self.directory)
            reload_producers(self.producers, self.files, self.directory, names, self.segments, self.end_offset)
        except MalformedData as error:
            raise self._broken(error) from error
        except StorageFault as fault:
            self._refuse_until_completed(fault, self._end_truncation)
            raise

    def _broken(self, error: MalformedData) -> StorageFault:
        """Refuse all further writes: a truncation met a broken batch, so the end of the log is not known. The next
        start recovers it."""
        fault = StorageFault(self.directory, OSError(errno.EIO, str(error)))
        self.fault = fault
        return fault

    # --- close --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write and sync everything that a quick start needs, as far as there is room on the disk. Raise the fault of a
        failed log, which needs recovery."""
        self._adopt_flush_fault()
        if self.fault is not None:
            raise self.fault
        # Do not sync a log that was never written to: it has nothing to lose, and a sync costs as much as any other.
        if self.end_offset or self.generation:
            if self._sealed_at != (self.end_offset, self.generation):
                written = write_snapshot_if_possible(self.files, self.directory, self.end_offset, self.producers)
                self.flushing.add([*written, *self.segments.active.seal_if_possible()])
            self.flush()
            self.segments.active.release()
        self.fault = StorageFault(self.directory, OSError("the log is closed"))

    def retire(self) -> None:
        """Refuse all further writes, because the partition is deleted."""
        self.fault = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.partition} is deleted.")
