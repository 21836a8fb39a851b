"""Tells compaction which batches were aborted, and which markers have no records left.

It must see the batches in order. A marker stays while a batch of its transaction does: readers need it to skip aborted
records. The new segment's transaction index lists only those aborted transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from moldau.log.txn_index import AbortedTxn
from moldau.wire.batch import Buffer
from moldau.wire.records import ControlType, control_type, decode_records


class TransactionWalk:
    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted` is ordered by first offset."""
        self._to_come = deque(aborted)
        self._aborted: dict[int, AbortedTxn] = {}
        """Producer id -> its aborted transaction at the present offset."""
        self._has_batches: set[int] = set()
        """Producers with a batch in their present transaction, aborted or not."""
        self._still_aborted: list[AbortedTxn] = []

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional data batch was aborted."""
        self._begin(last_offset)
        self._has_batches.add(producer_id)
        return producer_id in self._aborted

    def is_spent(self, producer_id: int, last_offset: int, batch: Buffer) -> bool:
        """Whether a control batch is needed only by consumers that are still before it."""
        self._begin(last_offset)
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
        """Return the aborted transactions with batches left whose marker was met since the last call."""
        transactions, self._still_aborted = self._still_aborted, []
        return transactions

    def _begin(self, offset: int) -> None:
        to_come = self._to_come
        while to_come and to_come[0].first_offset <= offset:
            transaction = to_come.popleft()
            self._aborted[transaction.producer_id] = transaction
