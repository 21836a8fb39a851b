"""What is known of transactions and of the producers that write them, as plain values, and which of them hang.

How these are asked for is transactions.py, how they are drawn is each tool's. Pure.
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
"""In which a transaction has begun and not ended everywhere."""
UNKNOWN: Final = "Unknown"


class ListedTransaction(NamedTuple):
    """A line of a listing: a transactional id as its coordinator, a broker, knows it."""

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
    """When the present transaction, or the last, began; None before the first."""
    partitions: tuple[TopicPartition, ...]
    """Those that still wait for the end of the transaction."""


class ActiveProducer(NamedTuple):
    """What a replica of a partition remembers of a producer."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int | None
    """The offset where its open transaction begins; None where none is open."""


class OpenTransaction(NamedTuple):
    """A transaction as a partition knows it: begun there, and not ended."""

    where: TopicPartition
    producer: ActiveProducer


def state_name(said: str) -> str:
    return said if said in STATES else UNKNOWN


def open_for_long(
    producers: Mapping[TopicPartition, Iterable[ActiveProducer]], now_ms: int, longer_than_ms: int
) -> list[OpenTransaction]:
    """Transactions nobody has written to for longer than that."""
    return [
        OpenTransaction(where, producer)
        for where, active in producers.items()
        for producer in active
        if producer.transaction_start is not None and now_ms - producer.last_timestamp > longer_than_ms
    ]


def hanging(
    found: Iterable[OpenTransaction],
    transactional_ids: Mapping[int, str],
    described: Mapping[str, DescribedTransaction | None],
) -> list[OpenTransaction]:
    """Those that no coordinator will ever end: of producers it does not know, or in partitions it does not wait for."""

    def is_waited_for(each: OpenTransaction) -> bool:
        transactional_id = transactional_ids.get(each.producer.producer_id)
        known = None if transactional_id is None else described.get(transactional_id)
        return known is not None and each.where in known.partitions

    return [each for each in found if not is_waited_for(each)]
