"""The transactions of a cluster: those that exist, those that nobody will end, and how one is aborted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin import transaction_values
from moldau.client.admin.transaction_values import OPEN_STATES, ActiveProducer, DescribedTransaction, OpenTransaction
from moldau.client.admin.transactions import Transactions
from moldau.client.cluster import Cluster
from moldau.operations.failures import NotFound, OperationFailed, describe_existing, kafka_failure
from moldau.operations.next_steps import NextStep


class TransactionConnection(NamedTuple):
    transactions: Transactions
    cluster: Cluster


def existing_transactions(connection: TransactionConnection, names: Iterable[str]) -> list[DescribedTransaction]:
    """Return the transactional ids with these names, in their order; fail with the names that do not exist."""
    return describe_existing(
        names,
        connection.transactions.described,
        _is_unknown,
        kind="transactional id",
        step=NextStep.SEE_TRANSACTIONS,
    )


def _is_unknown(description: DescribedTransaction | KafkaError) -> bool:
    return isinstance(description, KafkaError) and description.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def existing_partitions(
    connection: TransactionConnection, topics: Sequence[str], only: Sequence[int]
) -> list[TopicPartition]:
    """Return the partitions of these topics, or of all topics if none is named; with `only`, just those numbers."""
    topics_by_name = connection.cluster.topics()
    missing = [name for name in topics if name not in topics_by_name]
    if missing:
        raise NotFound(f"no topic {', '.join(missing)}", NextStep.SEE_TOPICS)
    partitions = []
    for name in topics or sorted(topics_by_name):
        leaders = topics_by_name[name].leaders
        absent = [str(index) for index in only if index not in leaders]
        if absent:
            raise NotFound(f"{name} has no partition {', '.join(absent)}; it has 0 to {len(leaders) - 1}")
        partitions += [TopicPartition(name, index) for index in sorted(only or leaders)]
    return partitions


def active_producers(
    connection: TransactionConnection, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ActiveProducer]]:
    """Return the producers of each partition; fail if one of the partitions returns an error."""
    if broker_id is not None and broker_id not in connection.cluster.nodes():
        raise NotFound(f"no broker {broker_id}", NextStep.SEE_BROKERS)
    producers_of = {}
    for partition, producers in connection.transactions.producers(partitions, broker_id).items():
        if isinstance(producers, KafkaError):
            raise kafka_failure(producers, f"{partition.topic} partition {partition.partition}")
        producers_of[partition] = producers
    return producers_of


def unknown_to_coordinators(
    connection: TransactionConnection, candidates: list[OpenTransaction]
) -> list[OpenTransaction]:
    if not candidates:
        return []
    producer_ids = {transaction.producer.producer_id for transaction in candidates}
    listed = connection.transactions.listed(producer_ids=sorted(producer_ids))
    transactional_ids = {transaction.producer_id: transaction.transactional_id for transaction in listed}
    described: dict[str, DescribedTransaction | None] = {}
    for name, description in connection.transactions.described(transactional_ids.values()).items():
        if isinstance(description, KafkaError) and description.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise kafka_failure(description, f"transactional id {name}")
        described[name] = None if isinstance(description, KafkaError) else description
    return transaction_values.hanging(candidates, transactional_ids, described)


def require_open(connection: TransactionConnection, name: str) -> None:
    """Fail if the transactional id does not exist, or has no open transaction."""
    (described,) = existing_transactions(connection, [name])
    if described.state not in OPEN_STATES:
        raise OperationFailed(f"{name} has no open transaction, it is {described.state}; there is nothing to abort")


def terminate(connection: TransactionConnection, name: str) -> None:
    """Abort the open transaction of a transactional id, and fence its producer."""
    try:
        connection.transactions.terminate(name)
    except KafkaError as error:
        raise kafka_failure(error, f"transactional id {name}") from error


def producer_beginning_at(connection: TransactionConnection, partition: TopicPartition, start: int) -> ActiveProducer:
    """Return the producer whose open transaction begins at this offset; fail if there is none."""
    for producer in active_producers(connection, [partition])[partition]:
        if producer.transaction_start == start:
            return producer
    reason = f"no open transaction begins at offset {start} of {partition.topic} partition {partition.partition}"
    raise NotFound(reason, NextStep.SEE_PRODUCERS, partition.topic)


def abort_in_partition(connection: TransactionConnection, partition: TopicPartition, producer: ActiveProducer) -> None:
    """End the producer's transaction in this partition only, without a coordinator."""
    try:
        connection.transactions.abort(
            partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
        )
    except KafkaError as error:
        raise kafka_failure(error, f"{partition.topic} partition {partition.partition}") from error
