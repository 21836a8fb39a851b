"""What stays of a piece: which records, and of which batches at least the header.

A record stays if it is the last of its key, and if it has a value or may not be forgotten yet. Tombstones and spent
markers get a delete horizon when they are first met, `delete.retention.ms` from then, and go when it is past (KIP-534)
and no replica is away. Batches that lose all records go too, but for two kinds: the last ones of a producer that is
still known, and the last one of a segment. Of those the header stays, so that sequences and offsets are not lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from moldau.columns.varints import Mask
from moldau.log.cleaning.job import CleaningJob
from moldau.log.cleaning.key_map import KeyMap
from moldau.log.cleaning.pieces import Piece
from moldau.log.cleaning.rows import Rows
from moldau.log.cleaning.transactions import TransactionWalk


class BatchFate(NamedTuple):
    """One entry for each batch of a piece."""

    is_discarded: Mask
    """None of its records stays: it was aborted, or is a marker that has outlived its transaction long enough."""
    is_spent_marker: Mask
    keeps_header: Mask


class Retention:
    """The rules of one round, and how far it has come."""

    def __init__(self, job: CleaningJob, keys: KeyMap, cleaned_up_to: int) -> None:
        self._job = job
        self._keys = keys
        self._cleaned_up_to = cleaned_up_to
        self.transactions = TransactionWalk(job.aborted)
        kept = [(each.last_data_offset, *each.earlier_offsets) for each in job.producers.values()]
        last = [offset for offsets in kept for offset in offsets if offset >= 0]
        self._last_data_offsets = np.array(last, np.int64)

    def fate_of(self, piece: Piece, is_end: bool) -> BatchFate:
        """`is_end` if the piece ends a segment behind which another one will stand."""
        is_discarded = np.zeros(piece.starts.size, np.bool_)
        is_spent = np.zeros(piece.starts.size, np.bool_)
        keeps_header = self._is_last_of_producer(piece)
        is_past = self._is_past(piece)
        is_control = piece.is_control
        for index in np.flatnonzero(piece.is_transactional | is_control).tolist():
            producer_id, last_offset = int(piece.producer_ids[index]), int(piece.last_offsets[index])
            if not is_control[index]:
                is_discarded[index] = self.transactions.is_aborted(producer_id, last_offset)
                continue
            is_spent[index] = self.transactions.is_spent(producer_id, last_offset, piece.batch(index))
            if self._has_last_epoch(piece, index):
                # Where Kafka was here before, the record is gone and the header is all there is.
                keeps_header[index] = True
            else:
                is_discarded[index] = is_spent[index] and is_past[index]
        if is_end:
            keeps_header[-1] = True
        return BatchFate(is_discarded, is_spent, keeps_header)

    def _is_last_of_producer(self, piece: Piece) -> Mask:
        """Whether a batch is among the last that its producer has written."""
        if not self._last_data_offsets.size:
            return np.zeros(piece.starts.size, np.bool_)
        found: Mask = np.isin(piece.last_offsets, self._last_data_offsets) & (piece.producer_ids >= 0)
        for index in np.flatnonzero(found).tolist():
            last = self._job.producers.get(int(piece.producer_ids[index]))
            offset = int(piece.last_offsets[index])
            found[index] = last is not None and (offset == last.last_data_offset or offset in last.earlier_offsets)
        return found

    def _has_last_epoch(self, piece: Piece, index: int) -> bool:
        """Whether only this marker still knows under which epoch its producer is."""
        last = self._job.producers.get(int(piece.producer_ids[index]))
        epoch = int(piece.producer_epochs[index])
        return last is not None and last.last_data_offset < 0 and last.epoch == epoch

    def kept(self, piece: Piece, rows: Rows) -> Mask:
        """Which records stay of batches that are not discarded. Control records do; nobody has asked for them here."""
        is_beyond = rows.offsets >= self._cleaned_up_to
        is_last = rows.offsets >= self._keys.last_offsets(rows.keys)
        kept: Mask = rows.has_key & is_last
        is_past = self._is_past(piece)
        if is_past.any():
            kept &= ~(rows.is_tombstone & is_past[rows.batch_of])
        kept |= is_beyond
        return kept

    def _is_past(self, piece: Piece) -> Mask:
        """Whether what a batch has to say of others need not be known any longer."""
        if not self._job.may_forget:
            return np.zeros(piece.starts.size, np.bool_)
        return (piece.delete_horizons >= 0) & (piece.delete_horizons <= self._job.now_ms)

    def horizon_ms(self) -> int:
        return self._job.now_ms + self._job.delete_retention_ms
