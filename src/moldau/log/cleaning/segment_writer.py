"""Writes the new segment of a compaction, with its indexes. The files end in `.cleaned`; `finish` syncs them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from moldau.base.buffers import Buffer
from moldau.columns.varints import Numbers
from moldau.log import layout
from moldau.log.cleaning.swap import segment_path
from moldau.log.files import File, Files, write_all
from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import TimeIndex, TimestampOffset
from moldau.log.txn_index import AbortedTxn, TxnIndex

SYNC_BYTES: Final = 32 << 20
"""Bytes between two syncs: syncing a gigabyte at once would delay all other writes."""


class BatchesToWrite(NamedTuple):
    """Consecutive batches; every column has an entry for each."""

    content: bytes
    sizes: Numbers
    last_offsets: Numbers
    max_timestamps: Numbers


class CleanedSegmentWriter:
    def __init__(self, files: Files, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._files = files
        self._stem = segment_path(directory, base_offset)
        self._interval = index_interval_bytes
        self._file = self._create(layout.LOG)
        self.size = 0
        self._synced = 0
        self._indexed_at = 0
        """Position of the last batch in the index."""
        self._offset_index = OffsetIndex(base_offset)
        self._time_index = TimeIndex(base_offset)
        self._largest = TimestampOffset(-1, base_offset)

    def _create(self, suffix: str) -> File:
        file = self._files.open(self._stem + suffix + layout.CLEANED, create=True)
        file.truncate(0)
        return file

    def append(self, batches: BatchesToWrite) -> None:
        if not batches.sizes.size:
            return
        write_all(self._file, batches.content, self.size)
        positions = self.size + np.cumsum(batches.sizes) - batches.sizes
        self._index(positions, batches)
        self.size += len(batches.content)
        if self.size - self._synced > SYNC_BYTES:
            self._file.sync()
            self._synced = self.size

    def _index(self, positions: Numbers, batches: BatchesToWrite) -> None:
        """Index the batches as `Segment.record_batch` does."""
        running_max = np.maximum.accumulate(np.maximum(batches.max_timestamps, self._largest.timestamp))
        index = int(np.searchsorted(positions, self._indexed_at + self._interval, side="right"))
        while index < positions.size:
            self._update_largest(running_max, batches, index)
            self._offset_index.append(int(batches.last_offsets[index]), int(positions[index]))
            self._time_index.append(self._largest.timestamp, self._largest.offset)
            self._indexed_at = int(positions[index])
            index = int(np.searchsorted(positions, self._indexed_at + self._interval, side="right"))
        self._update_largest(running_max, batches, positions.size - 1)

    def _update_largest(self, running_max: Numbers, batches: BatchesToWrite, index: int) -> None:
        """Update the largest timestamp up to that batch, with the first batch that has it."""
        timestamp = int(running_max[index])
        if timestamp > self._largest.timestamp:
            holder = int(np.searchsorted(running_max, timestamp))
            self._largest = TimestampOffset(timestamp, int(batches.last_offsets[holder]))

    def finish(self, aborted: list[AbortedTxn]) -> None:
        """Write the indexes and sync all files; the directory is not synced."""
        self._time_index.append(self._largest.timestamp, self._largest.offset)
        for suffix, entries in (
            (layout.OFFSET_INDEX, self._offset_index.entries),
            (layout.TIME_INDEX, self._time_index.entries),
        ):
            self._write_index(suffix, entries)
        transactions = TxnIndex(self._files, self._stem + layout.TXN_INDEX + layout.CLEANED)
        transactions.replace(aborted)
        for path in transactions.take_unsynced():
            self._files.sync(path)
        self._file.sync()

    def _write_index(self, suffix: str, entries: Buffer) -> None:
        file = self._create(suffix)
        write_all(file, entries, 0)
        file.sync()
