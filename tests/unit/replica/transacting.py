"""What transactional producers and their coordinators write into a partition, in few words."""

from __future__ import annotations

from rooms import batch

from moldau.log.log import Appended
from moldau.log.validate import Origin
from moldau.replica.partition import Partition
from moldau.testing.clock import FakeClock
from moldau.wire.records import EndTxnMarker, build_batch, end_txn_marker


def write(
    partition: Partition, producer_id: int, sequence: int, count: int = 1, *, size: int = 10, is_plain: bool = False
) -> Appended:
    sent = batch(
        count,
        size,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=not is_plain,
    )
    return partition.append(sent, -1, FakeClock().now_ms())


def end(partition: Partition, producer_id: int, *, commit: bool) -> Appended:
    now_ms = FakeClock().now_ms()
    marker = end_txn_marker(EndTxnMarker(commit, 0), now_ms)
    sent = build_batch([marker], is_control=True, is_transactional=True, producer_id=producer_id, producer_epoch=0)
    return partition.append(memoryview(sent), -1, now_ms, Origin.COORDINATOR, transaction_version=1)
