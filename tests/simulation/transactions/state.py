"""The transaction coordinators' log, read while the cluster writes it: the producer ids of each transactional id."""

from __future__ import annotations

from collections.abc import Callable

from cluster.ledger import Complain
from compaction.ledger import CompactedLedger

from moldau.coordinator.transaction.serde import decode_record
from moldau.wire.batch import BatchHeader
from moldau.wire.log_records.transactions import TransactionLogKey, TransactionLogValue
from moldau.wire.records import decode_records

Successions = dict[str, list[int]]
"""The producer ids of each transactional id, in order."""


class StateLedger(CompactedLedger):
    """Calls `on_new_producer_id` for each transactional id that gets another producer id, and complains about one that
    returns to an earlier producer id."""

    def __init__(
        self, name: str, complain: Complain, successions: Successions, on_new_producer_id: Callable[[str], None]
    ) -> None:
        super().__init__(name, complain)
        self._successions = successions
        self._on_new_producer_id = on_new_producer_id

    def _extend(self, header: BatchHeader, batch: memoryview) -> None:
        super()._extend(header, batch)
        for record in () if header.is_control else decode_records(batch, header):
            found = None if record.key is None else decode_record(record.key, record.value)
            if found is not None and isinstance(found.value, TransactionLogValue):
                assert isinstance(found.key, TransactionLogKey)
                self._note(found.key.transactional_id, found.value.producer_id)

    def _note(self, transactional_id: str, producer_id: int) -> None:
        """Check that a replaced producer id is never used again."""
        known = self._successions.setdefault(transactional_id, [])
        if producer_id in known[:-1]:
            successor = known[known.index(producer_id) + 1]
            self._complain(f"{transactional_id} is producer {producer_id} again, which {successor} had replaced")
        if producer_id not in known:
            known.append(producer_id)
            if len(known) > 1:
                self._on_new_producer_id(transactional_id)
