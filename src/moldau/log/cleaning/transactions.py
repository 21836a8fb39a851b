"""Transactions as the cleaner meets them: which batches were aborted, which markers have outlived their records.

Walks along with the batches, in order. A marker stays while a batch of its transaction does: readers need it to tell
what was aborted, and the index of the new segment tells of those only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from moldau.log.txn_index import AbortedTxn
from moldau.wire.batch import Buffer
from moldau.wire.records import ControlType, control_type, decode_records


class TransactionWalk:
    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted` by first offset."""
        self._to_come = deque(aborted)
        self._aborted: dict[int, AbortedTxn] = {}
        """By producer: the aborted transaction that the walk is in."""
        self._has_batches: set[int] = set()
        """Producers of which a batch was met in the transaction that the walk is in, aborted or not."""
        self._still_aborted: list[AbortedTxn] = []

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """A transactional batch with records, or with what is left of them."""
        self._begin(last_offset)
        self._has_batches.add(producer_id)
        return producer_id in self._aborted

    def is_spent(self, producer_id: int, last_offset: int, batch: Buffer) -> bool:
        """Whether a control batch is of no more use, but for those who read on from before it."""
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
        """Transactions whose marker was met since last asked, and of which something is left to be passed over."""
        taken, self._still_aborted = self._still_aborted, []
        return taken

    def _begin(self, offset: int) -> None:
        to_come = self._to_come
        while to_come and to_come[0].first_offset <= offset:
            transaction = to_come.popleft()
            self._aborted[transaction.producer_id] = transaction
