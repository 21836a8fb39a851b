"""The checks of compacted topics: which missing records they allow, and which not."""

from __future__ import annotations

import pytest
from compaction.ledger import CompactedLedger

from moldau.wire.batch import read_header
from moldau.wire.records import EndTxnMarker, Record, build_batch, end_txn_marker

PRODUCER = 7


def ledger_with_a_tombstone(complaints: list[str], is_committed: bool) -> CompactedLedger:
    """The key k at 0, a tombstone of k at 1 in a transaction, its marker at 2, another key at 3."""
    ledger = CompactedLedger("__table-0", complaints.append)
    in_transaction = {"producer_id": PRODUCER, "producer_epoch": 0, "is_transactional": True}
    marker = end_txn_marker(EndTxnMarker(is_committed, 0), 0)._replace(offset=2)
    for batch in (
        build_batch([Record(0, 0, b"k", b"0")]),
        build_batch([Record(1, 0, b"k", None)], base_offset=1, **in_transaction),
        build_batch([marker], base_offset=2, is_control=True, **in_transaction),
        build_batch([Record(3, 0, b"other", b"3")], base_offset=3),
    ):
        ledger.show("leader", read_header(batch), memoryview(batch))
    assert complaints == []
    return ledger


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_replica_may_lack_a_key_only_after_a_committed_tombstone(is_committed: bool) -> None:
    """An aborted tombstone that removes a record is the defect that the check must notice."""
    complaints: list[str] = []
    ledger = ledger_with_a_tombstone(complaints, is_committed)
    ledger.judge_remaining("follower", before=(), remaining={3}, start_offset=0, cleaned_up_to=4)
    assert len(complaints) == (0 if is_committed else 1)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_reader_may_miss_a_key_only_after_a_committed_tombstone(is_committed: bool) -> None:
    assert ledger_with_a_tombstone([], is_committed).has_tombstone_from(0) == is_committed
