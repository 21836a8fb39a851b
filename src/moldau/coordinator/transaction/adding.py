"""AddPartitionsToTxn: adds partitions to a transaction, or verifies that they are in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.transaction import PREPARED, State, Transaction, check_producer


def add(
    transaction: Transaction,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    client_transaction_version: int,
    now_ms: int,
) -> Transaction:
    """Return the transaction with `partitions` in it, or the same object if all were there. Raise KafkaError if the
    producer may not add them."""
    if transaction.state in PREPARED:
        # Check this before the producer: it may already use the producer id that takes over at the end.
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
        client_transaction_version=client_transaction_version,
    )


def verify(
    transaction: Transaction, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition NONE if it is in the producer's open transaction, else TRANSACTION_ABORTABLE. Raise
    KafkaError if the producer is fenced, or its transaction is ending."""
    check_producer(transaction, producer)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }
