"""Decides which records compaction keeps, and of which batches at least the header, a piece of a segment at a time.

A record stays if it is the last of its key and is no expired tombstone. Tombstones, and markers whose transaction has
no batches left, get a delete horizon in the first round that reads them, `delete.retention.ms` from then. They are
removed after it (KIP-534), unless a replica is out of sync. Batches without records are removed, except the last ones
of an active producer and the last one of a new segment: their headers stay, so that sequences and offsets are not lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from moldau.columns.varints import Mask
from moldau.log.cleaning.job import CleaningJob
from moldau.log.cleaning.key_map import KeyMap
from moldau.log.cleaning.pieces import Piece
from moldau.log.cleaning.rows import Rows
from moldau.log.cleaning.transactions import TransactionTracker


class BatchDecisions(NamedTuple):
    """One entry for each batch of a piece."""

    is_discarded: Mask
    """None of its records stays: it was aborted, or is an expired marker."""
    is_obsolete_marker: Mask
    """It is a marker whose transaction has no batches left."""
    keeps_header: Mask


class CompactionRules:
    """The rules of one round, and its transactions up to the current piece."""

    def __init__(self, job: CleaningJob, keys: KeyMap, cleaned_up_to: int) -> None:
        """`keys` has no records from the offset `cleaned_up_to` on: these stay."""
        self._job = job
        self._keys = keys
        self._cleaned_up_to = cleaned_up_to
        self.transactions = TransactionTracker(job.aborted)
        per_producer = [(each.last_data_offset, *each.earlier_offsets) for each in job.producers.values()]
        last_offsets = [offset for offsets in per_producer for offset in offsets if offset >= 0]
        self._last_data_offsets = np.array(last_offsets, np.int64)

    def decide_batches(self, piece: Piece, is_end: bool) -> BatchDecisions:
        """Decide on the piece's batches. `is_end` if the piece ends the last segment of a group, which becomes
        one new segment."""
        is_discarded = np.zeros(piece.starts.size, np.bool_)
        is_obsolete = np.zeros(piece.starts.size, np.bool_)
        keeps_header = self._is_last_of_producer(piece)
        is_expired = self._is_expired(piece)
        is_control = piece.is_control
        for index in np.flatnonzero(piece.is_transactional | is_control).tolist():
            producer_id, last_offset = int(piece.producer_ids[index]), int(piece.last_offsets[index])
            if not is_control[index]:
                is_discarded[index] = self.transactions.on_data_batch(producer_id, last_offset)
                continue
            is_obsolete[index] = self.transactions.on_control_batch(producer_id, last_offset, piece.batch(index))
            if self._has_last_epoch(piece, index):
                # Keep the marker even if it is obsolete: it carries the epoch. If Apache Kafka's cleaner has removed
                # its record, the header still carries it.
                keeps_header[index] = True
            else:
                is_discarded[index] = is_obsolete[index] and is_expired[index]
        if is_end:
            keeps_header[-1] = True
        return BatchDecisions(is_discarded, is_obsolete, keeps_header)

    def _is_last_of_producer(self, piece: Piece) -> Mask:
        """Whether a batch is among the last of its producer."""
        if not self._last_data_offsets.size:
            return np.zeros(piece.starts.size, np.bool_)
        is_last: Mask = np.isin(piece.last_offsets, self._last_data_offsets) & (piece.producer_ids >= 0)
        for index in np.flatnonzero(is_last).tolist():
            last = self._job.producers.get(int(piece.producer_ids[index]))
            offset = int(piece.last_offsets[index])
            is_last[index] = last is not None and (offset == last.last_data_offset or offset in last.earlier_offsets)
        return is_last

    def _has_last_epoch(self, piece: Piece, index: int) -> bool:
        """Whether the producer has no data batch left and this marker has its current epoch."""
        last = self._job.producers.get(int(piece.producer_ids[index]))
        epoch = int(piece.producer_epochs[index])
        return last is not None and last.last_data_offset < 0 and last.epoch == epoch

    def is_kept(self, piece: Piece, rows: Rows) -> Mask:
        """Return which rows are kept. They are data records of batches that are not discarded."""
        is_beyond = rows.offsets >= self._cleaned_up_to
        is_last = rows.offsets >= self._keys.last_offsets(rows.keys)
        kept: Mask = rows.has_key & is_last
        is_expired = self._is_expired(piece)
        if is_expired.any():
            kept &= ~(rows.is_tombstone & is_expired[rows.batch_of])
        kept |= is_beyond
        return kept

    def _is_expired(self, piece: Piece) -> Mask:
        """Whether the delete horizon of each batch has passed."""
        if not self._job.may_remove_expired:
            return np.zeros(piece.starts.size, np.bool_)
        return (piece.delete_horizons >= 0) & (piece.delete_horizons <= self._job.now_ms)

    def horizon_ms(self) -> int:
        return self._job.now_ms + self._job.delete_retention_ms
