"""The markers to write into the partitions of a transaction that is PREPARE_COMMIT or PREPARE_ABORT."""

from __future__ import annotations

from typing import NamedTuple

from moldau.base.ids import TopicPartition


class TransactionMarkers(NamedTuple):
    """The markers of one end. The sender passes this same object back when all are written: an equal object may belong
    to an earlier transaction of the producer, or to a coordinator that resigned."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
    """Sorted, at least one."""
