"""Opens a log: quickly after a clean stop, with recovery after any other.

After a clean stop the files are trusted if they pass a few cheap checks. After any other stop, every batch from the
recovery point's segment on is read and its CRC checked; the log ends before the first batch that is not whole.

Recovery never destroys records because another file is damaged:
  - indexes, time indexes, transaction indexes, snapshots and the epoch checkpoint are rebuilt from the batches;
  - a log start offset beyond the end of the log is ignored;
  - an incomplete tail is truncated: it was never acknowledged, unless the disk is damaged. But if whole batches follow
    the broken one, the truncated bytes are first copied to `<base>.log.<position>.corrupt`, and later segments are
    renamed to `<base>.log.corrupt`. Nothing reads or removes such files: they are for the operator. Without room for
    the copy, the log stays as it is, and is not opened.

On a full disk recovery goes on without indexes and snapshots: who needs them reads the batches again.

The report says what may be lost: a node whose logs are damaged must not count as in sync. A process that is killed in
the middle of a write leaves an incomplete tail too, which looks the same and counts as damage.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ids import TopicPartition
from moldau.log import layout
from moldau.log.cleaning.swap import complete_swaps
from moldau.log.config import LogConfig
from moldau.log.epochs import EpochEntry, LeaderEpochs
from moldau.log.files import File, Files, write_all
from moldau.log.gaps import Gap, find_gap, follows_on
from moldau.log.log import Log
from moldau.log.producers import Producers
from moldau.log.rebuild import (
    aborted_txn,
    epochs_from_batches,
    read_epochs,
    reload_producers,
    replace_epochs,
    replay_batch,
    replay_data_batch,
    snapshot_offsets,
    write_snapshot_if_possible,
)
from moldau.log.reports import RecoveryReport
from moldau.log.segment import INDEX_INTERVAL_BYTES, RELATIVE_OFFSET_MAX, Segment
from moldau.log.segments import Segments
from moldau.log.txn_index import AbortedTxn
from moldau.log.verified_batches import PIECE_BYTES, VerifiedBatches
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, BatchHeader

DELETED_LOG = layout.LOG + layout.DELETED


def open_log(
    files: Files,
    directory: str,
    partition: TopicPartition,
    config: LogConfig,
    *,
    start_offset: int | None,
    recovery_point: int,
    is_clean: bool,
    now_ms: int,
    before_cut: Callable[[], None] = lambda: None,
) -> tuple[Log, RecoveryReport]:
    """Open a log. `start_offset` and `recovery_point` come from the checkpoints and are checked against the log.
    `before_cut` is called before a damaged log is changed: afterwards the next start would see no damage."""
    report = RecoveryReport(partition)
    found_names = complete_swaps(files, directory, files.names(directory))
    names = _remove_leftovers(files, directory, found_names)
    if not any(layout.offset_of(name, layout.LOG) is not None for name in names):
        # Innocent only if the process was killed while it created the log or restarted it.
        before_cut()
        report.missing.append("all its segments are missing")
    segments = _find_segments(files, directory, names, start_offset, now_ms)
    clean_end = _clean_end(segments, report) if is_clean else None
    # `- 1`: also check the segment that ends exactly at the recovery point. It was perhaps rolled after that flush, and
    # its indexes not synced.
    first_suspect = len(segments) - 1 if is_clean else segments.floor(recovery_point - 1)
    trusted = list(segments)[: len(segments) if clean_end is not None else first_suspect]
    epochs = read_epochs(files, directory)
    start_gap = _missing_start(found_names, epochs, start_offset)
    gap = start_gap
    if gap is None and not is_clean:
        gap = find_gap(files, list(segments)[segments.floor(start_offset or 0) : first_suspect + 1])
    if gap is not None:
        report.missing.append(str(gap))
    if epochs is None:
        epochs = _rebuild_epochs(trusted, report, is_clean)
    producers = Producers()
    # The process that created the log ended before its first flush: then the topic id is not synced either.
    topic_id = [f"{directory}/{layout.PARTITION_METADATA}"] if layout.PARTITION_METADATA in names else []
    if clean_end is not None:
        end_offset = synced_end = clean_end
        # A file without a batch may be new, and its directory entry not synced yet.
        unsynced = [] if segments.active.size else [segments.active.log_path]
        unsynced += [] if end_offset else topic_id
        reload_producers(producers, files, directory, names, segments, end_offset)
    else:
        suspect = list(segments)[first_suspect:]
        reload_producers(producers, files, directory, names, segments, suspect[0].base_offset)
        recovery = _Recovery(files, directory, epochs, producers, report, before_cut)
        recovered, end_offset = recovery.recover(suspect)
        synced_end = max(0, min(recovery_point, end_offset))
        segments = Segments([*trusted, *recovered])
        unsynced = [segment.path + suffix for segment in recovered for suffix in layout.SEGMENT_FILES]
        unsynced += [*recovery.snapshots, *topic_id]
    # Most of thousands of partitions are idle: each opens its files again when it is first used.
    for segment in segments:
        segment.release()
    start_offset = _checked_start(start_offset, segments.first.base_offset, end_offset, report)
    epochs.truncate_from_end(end_offset)
    if start_gap is None:  # else the epochs alone tell where the log should begin
        epochs.truncate_from_start(start_offset)
    _remove_deleted_logs(files, directory, found_names, epochs)
    report.end_offset = end_offset
    report.lost_durable = end_offset < recovery_point
    log = Log(
        files, directory, partition, config, segments, epochs, producers,
        start_offset=start_offset, end_offset=end_offset, recovery_point=synced_end,
        now_ms=now_ms, unsynced=unsynced, is_new=end_offset == 0 if is_clean else recovery_point == 0,
    )  # fmt: skip
    log.whole_below = None if gap is None else gap.start_offset
    return log, report


# --- preparation -------------------------------------------------------------------------------------------------


def _remove_leftovers(files: Files, directory: str, names: list[str]) -> list[str]:
    """Remove deleted and temporary files, indexes without a log, and old snapshots; return the names of the rest. The
    segments that were deleted are removed last, see `_remove_deleted_logs`."""
    bases = {name[:20] for name in names if name.endswith(layout.LOG)}
    snapshots = snapshot_offsets(names)
    names_left = []
    for name in names:
        has_segment = name[:20] in bases
        is_index = any(layout.offset_of(name, suffix) is not None for suffix in layout.INDEX_FILES)
        is_orphan = is_index and not has_segment
        # Snapshots belong to the start of a segment; of those taken at a close only the newest is needed.
        offset = layout.offset_of(name, layout.SNAPSHOT)
        is_old_snapshot = offset is not None and not has_segment and offset != snapshots[0]
        if is_orphan or is_old_snapshot or name.endswith((layout.DELETED, layout.TEMPORARY)):
            if not name.endswith(DELETED_LOG):
                files.unlink(f"{directory}/{name}")
        else:
            names_left.append(name)
    return names_left


def _remove_deleted_logs(files: Files, directory: str, names: list[str], epochs: LeaderEpochs) -> None:
    """Remove the segments that were deleted before the last stop, once the epochs on disk no longer begin with theirs:
    else a start after the next kill would miss them."""
    deleted = [name for name in names if name.endswith(DELETED_LOG)]
    if deleted and epochs.is_dirty:
        replace_epochs(files, directory, epochs)
    for name in deleted:
        files.unlink(f"{directory}/{name}")


def _find_segments(files: Files, directory: str, names: list[str], start_offset: int | None, now_ms: int) -> Segments:
    """Return the segments in the directory. If there are none, create one at the start offset."""
    bases = sorted(base for name in names if (base := layout.offset_of(name, layout.LOG)) is not None)
    segments = []
    for base_offset in bases:
        size = files.size(f"{directory}/{layout.offset_name(base_offset)}{layout.LOG}")
        segments.append(Segment(files, directory, base_offset, size, now_ms))
    return Segments(segments or [Segment.create(files, directory, max(start_offset or 0, 0), now_ms)])


def _missing_start(names: list[str], epochs: LeaderEpochs | None, start_offset: int | None) -> Gap | None:
    """Return which records are missing at the beginning of the log, as far as its leader epochs tell. Segments that
    retention has deleted count as found until they are removed: the epochs on disk may be older than the deletion."""
    suffixes = (layout.LOG, DELETED_LOG)
    bases = [base for name in names for suffix in suffixes if (base := layout.offset_of(name, suffix)) is not None]
    if not bases or epochs is None or not epochs.entries:
        return None
    expected = max(epochs.entries[0].start_offset, start_offset or 0)
    return Gap(expected, min(bases)) if min(bases) > expected else None


def _rebuild_epochs(segments: list[Segment], report: RecoveryReport, is_clean: bool) -> LeaderEpochs:
    if is_clean and any(segment.size for segment in segments):
        report.notes.append("the leader epochs were rebuilt")
    return epochs_from_batches(segments)


def _clean_end(segments: Segments, report: RecoveryReport) -> int | None:
    """Return the log end offset after a clean stop; None if the active segment does not end with a whole batch."""
    active = segments.active
    try:
        return active.reload_tail()
    except MalformedData as error:
        report.notes.append(f"the log was closed cleanly, but its last segment is damaged: {error}")
        return None


def _checked_start(start_offset: int | None, first_base: int, end_offset: int, report: RecoveryReport) -> int:
    if start_offset is None or start_offset < first_base:
        return first_base
    if start_offset > end_offset:
        # Kafka would delete every segment here. We flush a log before its new start offset is written, so a start
        # beyond the end can only be a damaged checkpoint.
        report.notes.append(f"ignored log start offset {start_offset}: it is beyond the log end offset {end_offset}")
        return first_base
    return start_offset


# --- recovery ---------------------------------------------------------------------------------------------------


class _Recovery:
    """One pass over the segments of a log, from the first segment that may be incomplete on."""

    def __init__(
        self,
        files: Files,
        directory: str,
        epochs: LeaderEpochs,
        producers: Producers,
        report: RecoveryReport,
        before_cut: Callable[[], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._epochs = epochs
        self._producers = producers
        self._report = report
        self._before_cut = before_cut
        self._epochs_to_come: list[EpochEntry] = []
        """The epochs that the checkpoint has for the segments of this pass."""
        self.snapshots: list[str] = []
        """The snapshots that were written, which the caller must sync."""

    def recover(self, suspect: list[Segment]) -> tuple[list[Segment], int]:
        """Rebuild epochs and producers from these segments. Return (the segments that remain, the log end offset)."""
        next_offset = suspect[0].base_offset
        self._epochs_to_come = [entry for entry in self._epochs.entries if entry.start_offset >= next_offset]
        self._epochs.truncate_from_end(next_offset)
        recovered: list[Segment] = []
        is_whole = True
        for segment in suspect:
            if is_whole and not follows_on(segment.base_offset, next_offset):
                is_whole = False
                self._before_cut()
                self._report.missing.append(str(Gap(next_offset, segment.base_offset)))
            if not is_whole:
                self._set_segment_aside(segment)
                continue
            self._restore_snapshot(segment)
            next_offset, is_whole = self._recover_segment(segment)
            recovered.append(segment)
        for segment in recovered:
            segment.seal_if_possible()
        return recovered, next_offset

    def _restore_snapshot(self, segment: Segment) -> None:
        """Write the snapshot at the start of a segment if it is missing and there is room. Without it the state there
        would be lost with the segments before, which retention may delete."""
        is_needed = segment.base_offset > 0 and self._producers.active()
        if not is_needed or self._files.read(segment.path + layout.SNAPSHOT) is not None:
            return
        written = write_snapshot_if_possible(self._files, self._directory, segment.base_offset, self._producers)
        self.snapshots += written
        if not written:
            self._report.notes.append(f"no room for the producers' snapshot at offset {segment.base_offset}")

    def _recover_segment(self, segment: Segment) -> tuple[int, bool]:
        """Read and index all batches, and truncate the file before the first incomplete or damaged one. Return (next
        offset, whether nothing was truncated)."""
        size, file = segment.size, segment.file
        segment.forget()
        next_offset = segment.base_offset
        offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        aborted: list[AbortedTxn] = []
        batches = VerifiedBatches(file, 0, size)
        for position, header in batches:
            base_offset, last_offset, epoch = header.base_offset, header.last_offset, header.leader_epoch
            # Epochs never decrease in a log: this batch had been truncated, and the crash undid the truncation.
            is_stale = epoch < self._epochs.latest_epoch
            if is_stale or not next_offset <= base_offset <= last_offset <= offset_max:
                break
            size_in_bytes = header.size_in_bytes
            segment.record_batch(
                base_offset, last_offset, header.max_timestamp, size_in_bytes, position, INDEX_INTERVAL_BYTES
            )
            if epoch != self._epochs.latest_epoch:
                self._assign(epoch, next_offset, base_offset)
            if header.producer_id >= 0:
                aborted += self._replay(segment, position, header)
            run = batches.read_run(
                last_offset + 1, offset_max, epoch, segment.largest_timestamp,
                segment.offset_index.last()[1], INDEX_INTERVAL_BYTES,
            )  # fmt: skip
            segment.record_run(run)
            for each in run.producer_batches:
                replay_data_batch(self._producers, each)
            next_offset = run.next_offset
        segment.txn_index.replace(aborted)
        if segment.size == size:
            return next_offset, True
        self._before_cut()
        self._report.bytes_cut += size - segment.size
        if _whole_batches_follow(file, segment.size, size):
            self._copy_aside(file, segment, size)
        file.truncate(segment.size)
        return next_offset, False

    def _assign(self, epoch: int, gap_start: int, base_offset: int) -> None:
        """Add the epoch of a batch. If compaction left a gap before the batch, only the checkpoint knows which epochs
        began in the gap. Everywhere else the batches decide."""
        for entry in self._epochs_to_come:
            if gap_start <= entry.start_offset <= base_offset and self._epochs.latest_epoch < entry.epoch <= epoch:
                self._epochs.assign(*entry)
        self._epochs.assign(epoch, base_offset)

    def _replay(self, segment: Segment, position: int, header: BatchHeader) -> list[AbortedTxn]:
        read = partial(segment.read_batch, position, header.size_in_bytes)
        completed = replay_batch(self._producers, header, read)
        return [aborted_txn(self._producers, completed)] if completed is not None and completed.aborted else []

    def _copy_aside(self, file: File, segment: Segment, size: int) -> None:
        path = f"{segment.path}{layout.LOG}.{segment.size}{layout.CORRUPT}"
        target = self._files.open(path, create=True)
        target.truncate(0)
        try:
            for position in range(segment.size, size, PIECE_BYTES):
                piece = file.pread(min(PIECE_BYTES, size - position), position)
                write_all(target, piece, position - segment.size)
            target.sync()
        except StorageFault:
            self._files.unlink(path)  # the log still has all of it
            raise
        self._files.sync_directory(self._directory)
        self._report.set_aside.append(path)

    def _set_segment_aside(self, segment: Segment) -> None:
        """Rename a segment that follows a damaged batch, because its offsets would not be contiguous."""
        path = segment.path + layout.LOG
        if segment.size:
            self._files.rename(path, path + layout.CORRUPT)
            self._report.set_aside.append(path + layout.CORRUPT)
        else:
            self._files.unlink(path)
        for suffix in layout.INDEX_FILES:
            self._files.unlink(segment.path + suffix)


def _whole_batches_follow(file: File, position: int, end: int) -> bool:
    """Return whether a whole batch follows the damaged one at `position`. Its length field must be intact for this."""
    prefix = file.pread(BATCH_HEADER_BYTES, position)
    if len(prefix) < BATCH_HEADER_BYTES:
        return False
    size = BatchHeader._make(BATCH_HEADER.unpack(prefix)).size_in_bytes
    if size < BATCH_HEADER_BYTES:
        return False
    return any(True for _ in VerifiedBatches(file, position + size, end))
