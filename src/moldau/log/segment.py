"""One segment: a .log file with its indexes. Only the newest segment of a log is written to.

The log handles offsets, epochs and producers; a segment stores batches at positions and finds them again.
Its files are opened when first needed and closed by `release`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData, StorageFault
from moldau.log import layout
from moldau.log.config import LogConfig
from moldau.log.files import File, Files, write_all
from moldau.log.hot_bytes import HotBytes
from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from moldau.log.time_index import TimeIndex, TimestampOffset
from moldau.log.txn_index import TxnIndex
from moldau.log.verified_batches import Run
from moldau.log.walk import find_offset, walk_headers
from moldau.wire.batch import CRC_POSITION, CRC_START
from moldau.wire.crc import crc32c

RECENT_POSITIONS_MAX: Final = 128
"""How many recent batches' positions are kept: tail reads and high watermarks find them without a disk read."""

INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default of `index.interval.bytes`. Rebuilt indexes use it, whatever the topic's config."""

_INDEXES: Final = (layout.OFFSET_INDEX, layout.TIME_INDEX)

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""An index stores offsets relative to the base offset, as int32."""


class Segment:
    __slots__ = (
        "_bytes_since_index", "_file", "_files", "_first_timestamp", "_index_bytes", "_is_rebuilt",
        "_largest_timestamp", "_offset_index", "_time_index", "base_offset", "created_ms", "hot", "path",
        "recent_positions", "size", "txn_index",
    )  # fmt: skip

    def __init__(self, files: Files, directory: str, base_offset: int, size: int, created_ms: int) -> None:
        self._files = files
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.path = f"{directory}/{layout.offset_name(base_offset)}"
        """Path of the segment's files without their suffixes."""
        self.recent_positions: dict[int, int] = {base_offset: 0}
        self._largest_timestamp: TimestampOffset | None = None
        self.txn_index = TxnIndex(files, self.path + layout.TXN_INDEX)
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        self.hot = HotBytes(size)
        """Which bytes this process has written lately."""
        self._is_rebuilt = False
        self._index_bytes = 0
        """Size of the larger index at its last entry: neither may exceed `segment.index.bytes`."""

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, now_ms: int, is_directory_new: bool = False
    ) -> Segment:
        segment = cls(files, directory, base_offset, 0, now_ms)
        if not is_directory_new:
            segment._unlink_indexes()
            files.unlink(segment.path + layout.TXN_INDEX)
        segment._file = files.open(segment.log_path, create=True, stays_open=True)
        if not is_directory_new:
            segment._file.truncate(0)
        segment.forget()
        return segment

    # --- parts, loaded when needed ------------------------------------------------------------------------------

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._files.open(self.log_path, stays_open=True)
        return file

    @property
    def log_path(self) -> str:
        return self.path + layout.LOG

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def largest_timestamp(self) -> TimestampOffset:
        """The largest timestamp of the segment and the last offset of its batch; -1 without timestamps."""
        largest = self._largest_timestamp
        if largest is None:
            is_open = self._time_index is not None
            largest = self._largest_timestamp = self.time_index.last()
            if not is_open:  # retention reads this of every old segment, and nothing else
                self.release()
        return largest

    def load_largest_timestamp(self) -> bool:
        """Return whether `largest_timestamp` was not known yet and is now read from the indexes."""
        return self._largest_timestamp is None and bool(self.largest_timestamp)

    @property
    def first_timestamp(self) -> int:
        """The first batch's largest timestamp, from which `segment.ms` counts. -1 without a timestamp or batch."""
        if self._first_timestamp is None:
            self._first_timestamp = next((h.max_timestamp for _, h in walk_headers(self.file, 0, self.size)), -1)
        return self._first_timestamp

    def load_first_timestamp(self) -> bool:
        """Return whether `first_timestamp` was not known yet and is now read from the log."""
        return self._first_timestamp is None and self.first_timestamp is not None

    def forget(self) -> None:
        """Reset the state to that of an empty segment, before it is filled or read again."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._largest_timestamp = TimestampOffset(-1, self.base_offset)
        self.recent_positions = {self.base_offset: 0}
        self.size = 0
        self._first_timestamp = None
        self._bytes_since_index = self._index_bytes = 0

    def release(self) -> None:
        """Close the file and drop the indexes, which are on disk. A `Slice` that is being sent keeps it open."""
        self._file = self._offset_index = self._time_index = None
        self.txn_index.release()

    def _load_indexes(self) -> None:
        """Read both indexes. If one is missing or contradicts the log, rebuild both."""
        offsets = self._files.read(self.path + layout.OFFSET_INDEX)
        times = self._files.read(self.path + layout.TIME_INDEX)
        if offsets is not None and times is not None:
            offset_index, time_index = OffsetIndex(self.base_offset, offsets), TimeIndex(self.base_offset, times)
            if self._match_log(offset_index, time_index):
                self._offset_index, self._time_index = offset_index, time_index
                return
        self.rebuild_indexes()

    def _match_log(self, offset_index: OffsetIndex, time_index: TimeIndex) -> bool:
        """Whether the last entries of both indexes match their batches.

        Retention deletes by the last entry of the time index, so that entry is compared with the log.
        """
        next_offset = self.base_offset + RELATIVE_OFFSET_MAX + 1
        if not offset_index.is_sane(self.size) or not time_index.is_sane(next_offset):
            return False
        if not self.size:
            return not offset_index.entries and not time_index.entries
        largest = time_index.last()
        try:
            last_indexed, start = offset_index.last()
            for position, header in walk_headers(self.file, start, self.size):
                if position == start and last_indexed not in (None, header.last_offset):
                    return False
                if header.max_timestamp > largest.timestamp:
                    return False
            if not time_index.entries:
                return True
            start = offset_index.lookup(largest.offset)[1]
            headers = (header for _, header in walk_headers(self.file, start, self.size))
            batch = next((header for header in headers if header.last_offset >= largest.offset), None)
        except MalformedData:
            return False
        return batch is not None and (batch.max_timestamp, batch.last_offset) == (largest.timestamp, largest.offset)

    def rebuild_indexes(self, index_interval: int = INDEX_INTERVAL_BYTES) -> None:
        """Read all headers up to the first broken one, and write both index files if there is room."""
        rebuilt = Segment(self._files, self.path.rpartition("/")[0], self.base_offset, 0, self.created_ms)
        rebuilt.forget()
        with suppress(MalformedData):
            for position, header in walk_headers(self.file, 0, self.size):
                rebuilt.record_batch(
                    header.base_offset, header.last_offset, header.max_timestamp, header.size_in_bytes,
                    position, index_interval,
                )  # fmt: skip
        self._offset_index, self._time_index = rebuilt.offset_index, rebuilt.time_index
        self._largest_timestamp = rebuilt._largest_timestamp
        self._bytes_since_index, self._index_bytes = rebuilt._bytes_since_index, rebuilt._index_bytes
        self._is_rebuilt = True
        self.seal_if_possible()

    # --- writing ------------------------------------------------------------------------------------------------

    def write(self, batch: Buffer) -> int:
        """Write one batch at the end of the file and return its position; the caller then calls `record_batch`.

        If the write fails, the file is truncated to its old size, so that the log never holds half a batch.
        """
        if self._offset_index is None:
            # Load them before the file grows: the indexes on disk are checked against its present size.
            self._load_indexes()
        position = self.size
        file = self._file or self.file
        try:
            written = file.pwrite(batch, position)
            if written != len(batch):
                write_all(file, memoryview(batch)[written:], position + written)
        except StorageFault:
            file.truncate(position)
            raise
        return position

    def record_batch(
        self, base_offset: int, last_offset: int, max_timestamp: int, size: int, position: int, index_interval: int
    ) -> None:
        """Record and index a batch that was written at `position`, which was the end of the file."""
        largest = self._largest_timestamp or self.largest_timestamp
        if max_timestamp > largest[0]:
            largest = self._largest_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self._bytes_since_index > index_interval:
            self.offset_index.append(last_offset, position, base_offset)
            self.time_index.append(largest.timestamp, largest.offset)
            self._index_bytes = max(len(self.offset_index.entries), len(self.time_index.entries))
            self._bytes_since_index = 0
        self._bytes_since_index += size
        self.hot.note(position, size)
        if not position:
            self._first_timestamp = max_timestamp
        positions = self.recent_positions
        if len(positions) >= RECENT_POSITIONS_MAX:
            del positions[next(iter(positions))]
        positions[base_offset] = position
        self.size = position + size

    def record_run(self, run: Run) -> None:
        """Record and index the batches of a run, which begins at the end of what is recorded."""
        for entry in run.entries:
            self.offset_index.append(entry.last_offset, entry.position, entry.base_offset)
            self.time_index.append(entry.largest.timestamp, entry.largest.offset)
        self._index_bytes = max(len(self.offset_index.entries), len(self.time_index.entries))
        self._largest_timestamp = run.largest
        self._bytes_since_index = run.end - self.offset_index.last()[1]
        self.hot.note(self.size, run.end - self.size)
        self.size = run.end

    def should_roll(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig, jitter_ms: int
    ) -> bool:
        """Whether a batch of this size, offset and timestamp belongs in a new segment."""
        if self.size + size > config.segment_bytes or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not self.size:
            return False
        first_timestamp = self._first_timestamp
        if first_timestamp is None:
            first_timestamp = self.first_timestamp
        # Use the records' timestamps, not the clock: copied old data then rolls at the same records as the original.
        age_ms = max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - self.created_ms
        age_max_ms = config.segment_ms
        if config.max_compaction_lag_ms < age_max_ms and config.is_compacted:
            # The active segment is never compacted, so it must be rolled before the lag is over.
            age_max_ms = config.max_compaction_lag_ms
        if age_ms > age_max_ms - jitter_ms:
            return True
        return self._index_bytes > config.segment_index_bytes - TIME_ENTRY_BYTES

    def seal(self) -> list[str]:
        """Write the indexes, with the largest timestamp as the last entry; return the paths to sync."""
        largest = self.largest_timestamp
        self.time_index.append(largest.timestamp, largest.offset)
        written = []
        for suffix, entries in zip(_INDEXES, (self.offset_index.entries, self.time_index.entries), strict=True):
            file = self._files.open(self.path + suffix, create=True)
            file.truncate(0)
            write_all(file, entries, 0)
            written.append(file.path)
        return written

    def seal_if_possible(self) -> list[str]:
        """Like `seal`; without room on the disk no index is left there: whoever opens the segment next rebuilds it."""
        try:
            return self.seal()
        except StorageFault as fault:
            if not fault.is_shortage:
                raise
            self._unlink_indexes()
            return []

    def _unlink_indexes(self) -> None:
        for suffix in _INDEXES:
            self._files.unlink(self.path + suffix)

    def truncate(self, offset: int) -> int:
        """Remove every batch that reaches `offset` or beyond; return the new end offset."""
        found = self.locate(offset)
        if found is None:
            self._reload_after_truncation()
            return offset
        position, base_offset, _ = found
        end_offset = base_offset if base_offset <= offset else self._end_before(offset, position)
        self.offset_index.truncate(base_offset)
        self.time_index.truncate(base_offset)
        # Delete the indexes first: a missing index is rebuilt, one with entries beyond the end of the log is wrong.
        self._unlink_indexes()
        self.txn_index.truncate(base_offset)
        self.file.truncate(position)
        self.size = position
        self.recent_positions = {self.base_offset: 0}
        self._first_timestamp = None
        self._reload_after_truncation()
        return end_offset

    def end_after_truncation(self, offset: int) -> int:
        """What `truncate` would return."""
        found = self.locate(offset)
        if found is None:
            return offset
        position, base_offset, _ = found
        return base_offset if base_offset <= offset else self._end_before(offset, position)

    def _end_before(self, offset: int, position: int) -> int:
        """Return the end offset of the batch before `position`. Called if `offset` is in a gap that compaction left:
        the truncated log ends where its records end, so that the next segment is contiguous."""
        _, start = self.offset_index.lookup(offset)
        end_offset = self.base_offset
        for _, header in walk_headers(self.file, start, position):
            end_offset = header.next_offset
        return end_offset

    def _reload_after_truncation(self) -> None:
        """Read the largest timestamp, the bytes since the last index entry and the size of the indexes again."""
        self._index_bytes = max(len(self.offset_index.entries), len(self.time_index.entries))
        self._largest_timestamp = self.time_index.last()
        _, indexed = self.offset_index.last()
        self._bytes_since_index = self.size - indexed
        for _, header in walk_headers(self.file, indexed, self.size):
            if header.max_timestamp > self._largest_timestamp.timestamp:
                self._largest_timestamp = TimestampOffset(header.max_timestamp, header.last_offset)

    def reload_tail(self) -> int:
        """Load what `record_batch` needs, for the newest segment of a log that was closed. Return the next offset.

        Raises MalformedData if the file does not end with a whole batch.
        """
        if not self.size:
            return self.base_offset
        _, indexed = self.offset_index.last()
        next_offset = self.base_offset
        for _, header in walk_headers(self.file, indexed, self.size):
            next_offset = header.next_offset
        self._bytes_since_index = self.size - indexed
        return next_offset

    # --- lookup -------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int, int] | None:
        """Return (position, base offset, size) of the batch that contains `offset`, or else of the next batch; None if
        `offset` is beyond the last batch."""
        index = self.offset_index
        if (exact := index.exact(offset)) is not None:
            return exact
        last_offset, position = index.lookup(offset)
        try:
            return find_offset(self.file, position, self.size, offset, last_offset)
        except MalformedData:
            # Either the index is wrong or the log is broken. Rebuild the index, but only once: repeated reads of a
            # broken batch must not read the whole segment each time.
            if self._is_rebuilt:
                raise
            self.rebuild_indexes()
            return find_offset(self.file, self.offset_index.lookup(offset)[1], self.size, offset)

    def position_of(self, offset: int) -> int | None:
        """Return the position that `locate` would; for recently written batches without a disk read."""
        position = self.recent_positions.get(offset)
        if position is not None:
            return position
        found = self.locate(offset)
        return found[0] if found else None

    def read_batch(self, position: int, size: int) -> bytes:
        batch = self.file.pread(size, position)
        if crc32c(memoryview(batch)[CRC_START:]) != int.from_bytes(batch[CRC_POSITION:CRC_START], "big"):
            raise MalformedData(f"{self.log_path}: the batch at {position} does not match its CRC")
        return batch
