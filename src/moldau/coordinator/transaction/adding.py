"""AddPartitionsToTxn: partitions enter a transaction, or are looked up in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.transaction import PREPARED, State, Transaction, check_producer


def added(
    transaction: Transaction,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction:
    """With these partitions in it; the very same if all were there. KafkaError if it may not have them."""
    if transaction.state in PREPARED:
        # Before the producer is looked at: it may have been promised the id that takes over at the end.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    check_producer(transaction, producer)
    if transaction.state is State.ONGOING and transaction.partitions.issuperset(partitions):
        return transaction
    is_first = transaction.state is not State.ONGOING
    return replace(
        transaction,
        state=State.ONGOING,
        partitions=transaction.partitions.union(partitions),
        start_ms=now_ms if is_first else transaction.start_ms,
        last_update_ms=now_ms,
        previous_producer_id=transaction.producer_id,
        client_version=client_version,
    )


def verified(
    transaction: Transaction, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Which of them are in the open transaction of this producer. KafkaError if it has none."""
    check_producer(transaction, producer)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        each: ErrorCode.NONE if each in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }
