"""Tells compaction which batches were aborted, and which markers belong to transactions without batches.

Batches must be registered in order. A marker stays while a batch of its transaction does: readers need it to skip
aborted records. The new segment's transaction index lists only those aborted transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from moldau.base.buffers import Buffer
from moldau.log.txn_index import AbortedTxn
from moldau.wire.records import ControlType, control_type, decode_records


class TransactionTracker:
    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted` is ordered by first offset."""
        self._upcoming = deque(aborted)
        self._aborted: dict[int, AbortedTxn] = {}
        """Producer id -> its aborted transaction at the current offset."""
        self._has_batches: set[int] = set()
        """Producers with a batch in their current transaction, aborted or not."""
        self._still_aborted: list[AbortedTxn] = []

    def on_data_batch(self, producer_id: int, last_offset: int) -> bool:
        """Register a transactional data batch. Return whether it was aborted."""
        self._begin_aborted(last_offset)
        self._has_batches.add(producer_id)
        return producer_id in self._aborted

    def on_control_batch(self, producer_id: int, last_offset: int, batch: Buffer) -> bool:
        """Register a control batch. Return whether it is obsolete: its transaction has no batches left, so only
        consumers that are still before it need it."""
        self._begin_aborted(last_offset)
        records = decode_records(batch)
        if not records:
            return True
        kind = control_type(records[0])
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return False
        had_batches = producer_id in self._has_batches
        self._has_batches.discard(producer_id)
        transaction = self._aborted.pop(producer_id, None)
        if kind == ControlType.ABORT and transaction is not None and had_batches:
            self._still_aborted.append(transaction)
        return not had_batches

    def take_still_aborted(self) -> list[AbortedTxn]:
        """Return the aborted transactions with batches left whose marker was registered since the last call."""
        transactions, self._still_aborted = self._still_aborted, []
        return transactions

    def _begin_aborted(self, offset: int) -> None:
        upcoming = self._upcoming
        while upcoming and upcoming[0].first_offset <= offset:
            transaction = upcoming.popleft()
            self._aborted[transaction.producer_id] = transaction
