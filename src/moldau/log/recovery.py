"""Opening a log: quickly after a clean stop, carefully after any other.

After a clean stop files are believed, once they pass a few cheap checks. After any other, every batch from the
recovery point's segment on is read and its CRC checked; the log ends before the first batch that is not whole.

What is never done is to destroy data because something beside it is odd:
  - indexes, time indexes, transaction indexes, snapshots and the epoch checkpoint are rebuilt from the batches;
  - a log start beyond the end of the log is not believed;
  - a torn tail is cut off: nothing in it was ever promised. But if whole batches stand behind the broken one, the
    bytes cut off are first copied to `<base>.log.<position>.corrupt`, and later segments are renamed to
    `<base>.log.corrupt`. Nothing here reads or removes such files: they are for a person, or for replicas to mend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from moldau.base.errors import MalformedData
from moldau.base.ids import TopicPartition
from moldau.log import layout
from moldau.log.cleaning.swap import complete_swaps
from moldau.log.config import LogConfig
from moldau.log.epochs import EpochEntry, LeaderEpochs
from moldau.log.files import File, Files, write_all
from moldau.log.log import Log
from moldau.log.producers import Producers
from moldau.log.rebuild import (
    aborted_txn,
    epochs_from_batches,
    read_epochs,
    reload_producers,
    replay_batch,
    snapshot_offsets,
)
from moldau.log.segment import INDEX_INTERVAL_BYTES, RELATIVE_OFFSET_MAX, Segment
from moldau.log.segments import Segments
from moldau.log.txn_index import AbortedTxn
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, CRC_START, MAGIC, BatchHeader
from moldau.wire.crc import crc32c

PIECE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class RecoveryReport:
    """What was found on opening that a person, or a leader election, may want to know."""

    partition: TopicPartition
    end_offset: int = -1
    bytes_cut: int = 0
    set_aside: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost_durable: bool = False
    """The log ends below its recovery point: the disk lost what it had promised. Other replicas should lead."""

    @property
    def is_worth_telling(self) -> bool:
        return bool(self.bytes_cut or self.set_aside or self.notes)

    def __str__(self) -> str:
        told = [f"{self.partition} ends at offset {self.end_offset}"]
        if self.bytes_cut:
            told.append(f"{self.bytes_cut} bytes of a batch that was never whole were cut off")
        if self.lost_durable:
            told.append("the disk lost records that it had confirmed")
        told += [f"set aside as {path}" for path in self.set_aside]
        return "; ".join(told + self.notes)


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
) -> tuple[Log, RecoveryReport]:
    """`start_offset` and `recovery_point` are what the checkpoints say; neither is believed blindly."""
    report = RecoveryReport(partition)
    names = _tidy(files, directory, complete_swaps(files, directory, files.names(directory)))
    segments = _find_segments(files, directory, names, start_offset, now_ms)
    clean_end = _clean_end(segments, report) if is_clean else None
    # The segment that ends right at the recovery point may have been rolled after that flush, its indexes unsynced.
    place = len(segments) - 1 if is_clean else segments.floor(recovery_point - 1)
    believed = list(segments)[: len(segments) if clean_end is not None else place]
    epochs = read_epochs(files, directory)
    if epochs is None:
        epochs = _rebuild_epochs(believed, report, is_clean)
    producers = Producers()
    if clean_end is not None:
        end_offset = recovery_point = clean_end
        # A file without a batch may have been made just now, and its name not be on disk yet.
        unsynced = [] if segments.active.size else [segments.active.log_path]
        reload_producers(producers, files, directory, names, segments, end_offset)
    else:
        doubtful = list(segments)[place:]
        reload_producers(producers, files, directory, names, segments, doubtful[0].base_offset)
        recovered, end_offset = _Recovery(files, directory, epochs, producers, report).recover(doubtful)
        segments = Segments([*believed, *recovered])
        unsynced = [segment.path + suffix for segment in recovered for suffix in layout.SEGMENT_FILES]
        if layout.PARTITION_METADATA in names:
            # Whoever made the log may have been killed before its first flush: the id must not be lost before the rest.
            unsynced.append(f"{directory}/{layout.PARTITION_METADATA}")
    # Thousands of partitions mostly sleep: each opens its files again when it is first used.
    for segment in segments:
        segment.release()
    start_offset = _believable_start(start_offset, segments.first.base_offset, end_offset, report)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    report.end_offset = end_offset
    report.lost_durable = end_offset < recovery_point
    log = Log(
        files, directory, partition, config, segments, epochs, producers,
        start_offset=start_offset, end_offset=end_offset, recovery_point=max(0, min(recovery_point, end_offset)),
        now_ms=now_ms, unsynced=unsynced, is_new=not is_clean and recovery_point == 0,
    )  # fmt: skip
    return log, report


# --- before ------------------------------------------------------------------------------------------------------


def _tidy(files: Files, directory: str, names: list[str]) -> list[str]:
    """Removes what an earlier stop left half done: files on their way out, temporary ones, indexes of no log."""
    bases = {name[:20] for name in names if name.endswith(layout.LOG)}
    snapshots = snapshot_offsets(names)
    kept = []
    for name in names:
        is_orphan = name.endswith(layout.SIDE_FILES) and name[:20] not in bases
        # Snapshots stand where segments begin; of those taken at a close only the newest is of use.
        is_old_snapshot = (
            name.endswith(layout.SNAPSHOT)
            and name[:20] not in bases
            and layout.offset_of(name, layout.SNAPSHOT) != snapshots[0]
        )
        if is_orphan or is_old_snapshot or name.endswith((layout.DELETED, layout.TEMPORARY)):
            files.unlink(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept


def _find_segments(files: Files, directory: str, names: list[str], start_offset: int | None, now_ms: int) -> Segments:
    """What is there, by the names of the files; a log without any begins at its start."""
    bases = sorted(base for name in names if (base := layout.offset_of(name, layout.LOG)) is not None)
    found = []
    for base_offset in bases:
        size = files.size(f"{directory}/{layout.offset_name(base_offset)}{layout.LOG}")
        found.append(Segment(files, directory, base_offset, size, now_ms))
    return Segments(found or [Segment.create(files, directory, max(start_offset or 0, 0), now_ms)])


def _rebuild_epochs(segments: list[Segment], report: RecoveryReport, is_clean: bool) -> LeaderEpochs:
    if is_clean and any(segment.size for segment in segments):
        report.notes.append("the leader epochs were rebuilt")
    return epochs_from_batches(segments)


def _clean_end(segments: Segments, report: RecoveryReport) -> int | None:
    """The next offset of a log that was closed; None if the files do not bear that out."""
    active = segments.active
    try:
        return active.reload_tail()
    except MalformedData as error:
        report.notes.append(f"closed, but not as it should be: {error}")
        return None


def _believable_start(start_offset: int | None, first_base: int, end_offset: int, report: RecoveryReport) -> int:
    if start_offset is None or start_offset < first_base:
        return first_base
    if start_offset > end_offset:
        # Kafka would delete every segment here. We flush a log before its start is written down as moved, so a
        # start beyond the end can only be a damaged checkpoint.
        report.notes.append(f"a log start of {start_offset} beyond the end of the log, {end_offset}, was not believed")
        return first_base
    return start_offset


# --- reading everything again -----------------------------------------------------------------------------------


class _Recovery:
    """One pass over the segments of a log, from the first that may not be whole."""

    def __init__(
        self, files: Files, directory: str, epochs: LeaderEpochs, producers: Producers, report: RecoveryReport
    ) -> None:
        self._files = files
        self._directory = directory
        self._epochs = epochs
        self._producers = producers
        self._report = report
        self._epochs_to_come: list[EpochEntry] = []
        """What the checkpoint says of the segments that are read again."""

    def recover(self, doubtful: list[Segment]) -> tuple[list[Segment], int]:
        """(the segments that remain, the next offset). Epochs and producers are brought along from the first one."""
        next_offset = doubtful[0].base_offset
        self._epochs_to_come = [entry for entry in self._epochs.entries if entry.start_offset >= next_offset]
        self._epochs.truncate_from_end(next_offset)
        kept: list[Segment] = []
        is_whole = True
        for segment in doubtful:
            # Each segment begins where the one before ends: if not, a tail was lost without a trace in its file.
            follows_on = segment.base_offset == next_offset or segment.base_offset - next_offset > RELATIVE_OFFSET_MAX
            if not (is_whole and follows_on):
                is_whole = False
                self._set_segment_aside(segment)
                continue
            next_offset, is_whole = self._recover_segment(segment)
            kept.append(segment)
        for segment in kept:
            segment.seal()
        return kept, next_offset

    def _recover_segment(self, segment: Segment) -> tuple[int, bool]:
        """Reads all batches, learns all of them anew, cuts off what is not whole: (next offset, nothing was cut)."""
        size, file = segment.size, segment.file
        segment.forget()
        next_offset = segment.base_offset
        offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        aborted: list[AbortedTxn] = []
        for position, header in verified_batches(file, 0, size):
            base_offset, last_offset, epoch = header.base_offset, header.last_offset, header.leader_epoch
            # Epochs never go down in a log: such a batch was cut off once, and came back with the crash.
            is_stale = epoch < self._epochs.latest
            if is_stale or not next_offset <= base_offset <= last_offset <= offset_max:
                break
            size_in_bytes = header.size_in_bytes
            segment.note_batch(
                base_offset, last_offset, header.max_timestamp, size_in_bytes, position, INDEX_INTERVAL_BYTES
            )
            if epoch != self._epochs.latest:
                self._assign(epoch, next_offset, base_offset)
            if header.producer_id >= 0:
                aborted += self._replay(segment, position, header)
            next_offset = last_offset + 1
        segment.txn_index.replace(aborted)
        if segment.size == size:
            return next_offset, True
        self._report.bytes_cut += size - segment.size
        if _good_batches_follow(file, segment.size, size):
            self._copy_aside(file, segment, size)
        file.truncate(segment.size)
        return next_offset, False

    def _assign(self, epoch: int, hole_start: int, base_offset: int) -> None:
        """A batch of another epoch. Where compaction has left a hole before it, only the checkpoint knows which epochs
        began there; elsewhere the batches know better."""
        for entry in self._epochs_to_come:
            if hole_start <= entry.start_offset <= base_offset and self._epochs.latest < entry.epoch <= epoch:
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
        for position in range(segment.size, size, PIECE_BYTES):
            piece = file.pread(min(PIECE_BYTES, size - position), position)
            write_all(target, piece, position - segment.size)
        target.sync()
        self._files.sync_directory(self._directory)
        self._report.set_aside.append(path)

    def _set_segment_aside(self, segment: Segment) -> None:
        """A segment behind the break: its offsets no longer follow on."""
        path = segment.path + layout.LOG
        if segment.size:
            self._files.rename(path, path + layout.CORRUPT)
            self._report.set_aside.append(path + layout.CORRUPT)
        else:
            self._files.unlink(path)
        for suffix in layout.SIDE_FILES:
            self._files.unlink(segment.path + suffix)


def verified_batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch that is whole and matches its CRC, up to the first that is not."""
    piece, piece_start = memoryview(b""), position
    while end - position >= BATCH_HEADER_BYTES:
        inside = position - piece_start
        if len(piece) - inside < BATCH_HEADER_BYTES:
            piece, piece_start, inside = memoryview(file.pread(PIECE_BYTES, position)), position, 0
            if len(piece) < BATCH_HEADER_BYTES:
                return
        header = BatchHeader._make(BATCH_HEADER.unpack_from(piece, inside))
        size = header.size_in_bytes
        if header.magic != MAGIC or not BATCH_HEADER_BYTES <= size <= end - position:
            return
        if inside + size <= len(piece):
            crc = crc32c(piece[inside + CRC_START : inside + size])
        else:
            crc = _crc_of_file(file, position + CRC_START, position + size)
        if crc != header.crc:
            return
        yield position, header
        position += size


def _crc_of_file(file: File, start: int, end: int) -> int:
    crc = 0
    for position in range(start, end, PIECE_BYTES):
        crc = crc32c(file.pread(min(PIECE_BYTES, end - position), position), crc)
    return crc


def _good_batches_follow(file: File, position: int, end: int) -> bool:
    """Whether a whole batch stands behind the one at `position`, which is broken, as far as its length leads there."""
    prefix = file.pread(BATCH_HEADER_BYTES, position)
    if len(prefix) < BATCH_HEADER_BYTES:
        return False
    size = BatchHeader._make(BATCH_HEADER.unpack(prefix)).size_in_bytes
    if size < BATCH_HEADER_BYTES:
        return False
    return any(True for _ in verified_batches(file, position + size, end))
