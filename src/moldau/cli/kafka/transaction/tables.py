"""The tables of kafka-transactions, with their rows in Kafka's order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from moldau.cli.kafka.padded_table import padded_table
from moldau.client.admin.transaction_values import (
    ActiveProducer,
    DescribedTransaction,
    ListedTransaction,
    OpenTransaction,
)

NONE: Final = "None"
MINUTE_MS: Final = 60_000
LIST_HEADERS: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_HEADERS: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCERS_HEADERS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
HANGING_HEADERS: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)


def listed_table(transactions: Sequence[ListedTransaction]) -> str:
    """Sort by coordinator; within a coordinator keep the order of its response."""
    by_coordinator = sorted(transactions, key=lambda transaction: transaction.coordinator)
    return padded_table(LIST_HEADERS, by_coordinator)


def described_table(transaction: DescribedTransaction, now_ms: int) -> str:
    start_ms = transaction.start_ms
    row = (
        transaction.coordinator,
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state,
        transaction.timeout_ms,
        NONE if start_ms is None else start_ms,
        NONE if start_ms is None else now_ms - start_ms,
        ",".join(map(str, sorted(transaction.partitions))),
    )
    return padded_table(DESCRIBE_HEADERS, [row])


def producers_table(producers: Iterable[ActiveProducer]) -> str:
    rows = [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            NONE if producer.transaction_start is None else producer.transaction_start,
        )
        for producer in producers
    ]
    return padded_table(PRODUCERS_HEADERS, rows)


def hanging_table(hanging: Sequence[OpenTransaction], now_ms: int) -> str:
    rows = [
        (
            *transaction.where,
            transaction.producer.producer_id,
            transaction.producer.producer_epoch,
            transaction.producer.coordinator_epoch,
            transaction.producer.transaction_start,
            transaction.producer.last_timestamp,
            (now_ms - transaction.producer.last_timestamp) // MINUTE_MS,
        )
        for transaction in sorted(hanging, key=lambda transaction: transaction.producer.producer_id)
    ]
    return padded_table(HANGING_HEADERS, rows)
