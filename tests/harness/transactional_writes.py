"""Short functions that write to a partition as a transactional producer or its coordinator does."""

from __future__ import annotations

from harness.in_memory_node import batch
from moldau.log.log import Appended
from moldau.log.validate import Origin
from moldau.replica.partition import Partition
from moldau.testing.clock import FakeClock
from moldau.wire.records import EndTxnMarker, build_batch, end_txn_marker


def append_as_producer(
    partition: Partition,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    size: int = 10,
    idempotent_only: bool = False,
) -> Appended:
    data = batch(
        count,
        size,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=not idempotent_only,
    )
    return partition.append(data, -1, FakeClock().now_ms())


def append_marker(partition: Partition, producer_id: int, *, commit: bool) -> Appended:
    now_ms = FakeClock().now_ms()
    marker = end_txn_marker(EndTxnMarker(commit, 0), now_ms)
    data = build_batch([marker], is_control=True, is_transactional=True, producer_id=producer_id, producer_epoch=0)
    return partition.append(memoryview(data), -1, now_ms, Origin.COORDINATOR, transaction_version=1)
