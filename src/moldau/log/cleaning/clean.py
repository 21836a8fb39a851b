"""One round of compaction: keeps only the last record of each key in a log's older segments, at its offset.

There are two passes. The first reads the dirty part and collects the last offset of each key; if the map is full, the
round ends at that offset. The second reads everything up to that offset and writes the remaining records into new
segments (`.cleaned`), merging small ones, and syncs them. If anything fails, the log is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from moldau.columns.varints import Mask
from moldau.log import layout
from moldau.log.cleaning.compaction_rules import CompactionRules
from moldau.log.cleaning.job import CleanedGroup, CleaningJob, CleaningResult, SourceSegment
from moldau.log.cleaning.key_map import KeyMap
from moldau.log.cleaning.pieces import Piece, read_pieces
from moldau.log.cleaning.rewriting import rewrite
from moldau.log.cleaning.rows import Rows, read_rows
from moldau.log.cleaning.segment_writer import CleanedSegmentWriter
from moldau.log.cleaning.swap import segment_path
from moldau.log.cleaning.transactions import TransactionTracker
from moldau.log.files import Files
from moldau.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from moldau.log.segment import RELATIVE_OFFSET_MAX
from moldau.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES

Throttle = Callable[[int], None]
"""Called with the size of every piece read or written. It may block; an exception from it ends the round."""

PIECE_BYTES_MIN: Final = 4 << 20
"""A batch that a piece cuts off is read twice, and batches of busy producers are nearly as large as the default of
`log.cleaner.io.buffer.size`."""
WORKING_BYTES: Final = 48 << 20
"""Memory needed besides the map, numpy included, while batches are no larger than pieces (measured)."""
FEW_ROWS: Final = 64
"""If fewer rows than this are certain to fit, the map counts as full."""


def clean(files: Files, job: CleaningJob, throttle: Throttle) -> CleaningResult:
    """Run one round. Raise StorageFault if the disk fails, MalformedData if the log cannot be read."""
    return _Round(files, job, throttle).run()


class _Round:
    def __init__(self, files: Files, job: CleaningJob, throttle: Throttle) -> None:
        self._files = files
        self._job = job
        self._throttle = throttle
        map_bytes_max = max(job.map_bytes_max - WORKING_BYTES, job.map_bytes_max * 5 // 8)
        self._keys = KeyMap(map_bytes_max, keys_max=job.up_to - job.first_dirty_offset)
        self._bytes_read = self._bytes_written = self._records_read = self._records_kept = 0

    def run(self) -> CleaningResult:
        job = self._job
        cleaned_up_to = self._fill_key_map()
        rules = CompactionRules(job, self._keys, cleaned_up_to)
        sources = [segment for segment in job.segments if segment.base_offset < cleaned_up_to]
        groups = [self._clean_group(old, rules) for old in group_segments(job, sources)]
        if groups:
            self._files.sync_directory(job.directory)
        return CleaningResult(
            cleaned_up_to, tuple(groups), self._bytes_read, self._bytes_written,
            self._records_read, self._records_kept, len(self._keys), self._keys.bytes_used,
        )  # fmt: skip

    def _pieces(self, segment: SourceSegment) -> Iterator[Piece]:
        file = self._files.open(segment_path(self._job.directory, segment.base_offset) + layout.LOG)
        return read_pieces(file, segment.size, max(self._job.io_buffer_bytes, PIECE_BYTES_MIN), self._on_read)

    def _on_read(self, size: int) -> None:
        self._bytes_read += size
        self._throttle(size)

    # --- first pass: the last offset of each key ----------------------------------------------------------------

    def _fill_key_map(self) -> int:
        """Fill the map. Return the offset up to which it covers every record."""
        job = self._job
        dirty = job.first_dirty_offset
        transactions = TransactionTracker(txn for txn in job.aborted if txn.last_offset >= dirty)
        ends = [*(segment.base_offset for segment in job.segments[1:]), job.up_to]
        for segment, end in zip(job.segments, ends, strict=True):
            if end <= dirty:
                continue
            for piece in self._pieces(segment):
                has_keys = _batches_with_keys(piece, dirty, transactions)
                piece.check_crcs(np.flatnonzero(has_keys))
                for rows in read_rows(piece, has_keys, job.decompressed_bytes_max):
                    if (full_at := self._add_keys(rows)) is not None:
                        return full_at
        return job.up_to

    def _add_keys(self, rows: Rows) -> int | None:
        """Add the rows' keys to the map. Return the offset of the first record that did not fit; None if all did."""
        is_added = rows.has_key & (rows.offsets >= self._job.first_dirty_offset)
        keys, offsets = rows.keys.select(is_added), rows.offsets[is_added]
        while offsets.size:
            fit = self._keys.count_fitting(keys)
            if not fit or (fit < FEW_ROWS and fit < offsets.size and len(self._keys)):
                return int(offsets[0])
            self._keys.put(keys.select(slice(0, fit)), offsets[:fit])
            keys, offsets = keys.select(slice(fit, None)), offsets[fit:]
        return None

    # --- second pass: writing -----------------------------------------------------------------------------------

    def _clean_group(self, old: Sequence[SourceSegment], rules: CompactionRules) -> CleanedGroup:
        job = self._job
        writer = CleanedSegmentWriter(self._files, job.directory, old[0].base_offset, job.index_interval_bytes)
        last = max((segment for segment in old if segment.size), default=None)
        for segment in old:
            position = 0
            for piece in self._pieces(segment):
                position += int(piece.sizes.sum())
                self._clean_piece(piece, segment is last and position == segment.size, rules, writer)
        writer.finish(rules.transactions.take_still_aborted())
        return CleanedGroup(tuple(old), writer.size)

    def _clean_piece(self, piece: Piece, is_end: bool, rules: CompactionRules, writer: CleanedSegmentWriter) -> None:
        decisions = rules.decide_batches(piece, is_end)
        is_copied = ~decisions.is_discarded & ~piece.is_control
        for rows in read_rows(piece, is_copied, self._job.decompressed_bytes_max):
            written, kept = rewrite(piece, rows, rules.is_kept(piece, rows), decisions, rules.horizon_ms())
            writer.append(written)
            self._records_kept += kept
            self._bytes_written += len(written.content)
            self._throttle(len(written.content))
        self._records_read += int(piece.record_counts.sum())


def _batches_with_keys(piece: Piece, first_dirty_offset: int, transactions: TransactionTracker) -> Mask:
    """Return which batches have keys for the map: dirty data batches that were not aborted."""
    is_dirty = piece.last_offsets >= first_dirty_offset
    is_control = piece.is_control
    has_keys: Mask = is_dirty & ~is_control
    for index in np.flatnonzero(is_dirty & (piece.is_transactional | is_control)).tolist():
        producer_id, last_offset = int(piece.producer_ids[index]), int(piece.last_offsets[index])
        if is_control[index]:
            transactions.on_control_batch(producer_id, last_offset, piece.batch(index))
        else:
            has_keys[index] = not transactions.on_data_batch(producer_id, last_offset)
    return has_keys


def group_segments(job: CleaningJob, segments: Sequence[SourceSegment]) -> Iterator[list[SourceSegment]]:
    """Yield neighbours that become one new segment, within `segment.bytes` and the range and size of an index."""
    entry_bytes = max(OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES)
    index_bytes_max = job.segment_index_bytes // entry_bytes * max(job.index_interval_bytes, 1)
    size_max = min(job.segment_bytes, index_bytes_max)
    ends = {one.base_offset: other.base_offset for one, other in zip(job.segments, job.segments[1:], strict=False)}
    group: list[SourceSegment] = []
    for segment in segments:
        end = ends.get(segment.base_offset, job.up_to)
        is_long = group and end - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX
        if group and (is_long or sum(each.size for each in group) + segment.size > size_max):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


__all__ = ["CleanedGroup", "CleaningJob", "CleaningResult", "clean"]
