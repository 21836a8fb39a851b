"""What is to be written into the partitions of a transaction whose end was decided."""

from __future__ import annotations

from typing import NamedTuple

from moldau.base.ids import TopicPartition


class TransactionMarkers(NamedTuple):
    """One sending of them. When all are written, the coordinator is told with this very object: equal ones may belong
    to an earlier transaction of the same producer, or to a coordinator that is no more."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
    """Sorted. There is at least one."""
