"""The tables of kafka-transactions, with their rows in Kafka's order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moldau.base.ids import TopicPartition
from moldau.cli.kafka.java import hash_order
from moldau.cli.kafka.padded_table import padded_table
from moldau.client.transaction_values import (
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
    """Group by coordinator, in the order of Java's HashMap; within a coordinator in the order of its response."""
    brokers = hash_order.integers(transaction.coordinator for transaction in transactions)
    return padded_table(
        LIST_HEADERS,
        [transaction for broker in brokers for transaction in transactions if transaction.coordinator == broker],
    )


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
        ",".join(map(str, hash_order.partitions(transaction.partitions))),
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
        for producer_id in hash_order.longs(transaction.producer.producer_id for transaction in hanging)
        for transaction in hanging
        if transaction.producer.producer_id == producer_id
    ]
    return padded_table(HANGING_HEADERS, rows)


def in_java_order(
    producers: Mapping[TopicPartition, Sequence[ActiveProducer]],
) -> dict[TopicPartition, Sequence[ActiveProducer]]:
    """Return the partitions in the order in which Kafka's tool iterates over them."""
    return {partition: producers[partition] for partition in hash_order.partitions_presized(producers)}
