"""Transactions and their producers as plain values, and which transactions hang.

transactions.py requests them; each tool formats them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.ids import TopicPartition

ONGOING: Final = "Ongoing"
STATES: Final = (
    "Empty",
    ONGOING,
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)
OPEN_STATES: Final = (ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states of a transaction that has begun and has not ended on all partitions."""
UNKNOWN: Final = "Unknown"


class ListedTransaction(NamedTuple):
    """A transactional id in a listing, from its coordinator, a broker."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """When the current transaction, or the last one, began; None before the first."""
    partitions: tuple[TopicPartition, ...]
    """The partitions that still wait for the end of the transaction."""


class ActiveProducer(NamedTuple):
    """The state of a producer in a replica of a partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int | None
    """The first offset of its open transaction, or None."""


class OpenTransaction(NamedTuple):
    """A transaction that has begun in a partition and has not ended there."""

    where: TopicPartition
    producer: ActiveProducer


def state_name(name: str) -> str:
    return name if name in STATES else UNKNOWN


def open_for_long(
    producers: Mapping[TopicPartition, Iterable[ActiveProducer]], now_ms: int, longer_than_ms: int
) -> list[OpenTransaction]:
    """Return the open transactions whose last write is older than `longer_than_ms`."""
    return [
        OpenTransaction(where, producer)
        for where, active in producers.items()
        for producer in active
        if producer.transaction_start is not None and now_ms - producer.last_timestamp > longer_than_ms
    ]


def hanging(
    candidates: Iterable[OpenTransaction],
    transactional_ids: Mapping[int, str],
    described: Mapping[str, DescribedTransaction | None],
) -> list[OpenTransaction]:
    """Return those that no coordinator will end: it does not know the producer, or does not wait for the partition."""

    def is_waited_for(transaction: OpenTransaction) -> bool:
        transactional_id = transactional_ids.get(transaction.producer.producer_id)
        coordinator_state = None if transactional_id is None else described.get(transactional_id)
        return coordinator_state is not None and transaction.where in coordinator_state.partitions

    return [transaction for transaction in candidates if not is_waited_for(transaction)]
