"""How `moldau transaction` connects to the transactions of a cluster, and what it prints if ids do not exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.cluster.connect import (
    COORDINATOR_TIMEOUT_MS,
    HINT_TOPICS,
    HINT_TRANSACTIONS,
    answering_cluster,
    describe_existing,
    kafka_failure,
)
from moldau.cli.connect import ANSWER_SECONDS, Broker, CommandFailed
from moldau.client.admin.transaction_values import ActiveProducer, DescribedTransaction
from moldau.client.admin.transactions import Transactions
from moldau.client.cluster import Cluster


class TransactionConnection(NamedTuple):
    transactions: Transactions
    cluster: Cluster


@contextmanager
def transaction_connection(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[TransactionConnection]:
    """Yield the transactions of a cluster that answers.

    Inside the block, turn error codes, lost connections and malformed responses into CommandFailed, which is printed as
    one line.
    """
    with answering_cluster(broker, answer_seconds) as cluster:
        yield TransactionConnection(Transactions(cluster, COORDINATOR_TIMEOUT_MS), cluster)


def existing_transactions(connection: TransactionConnection, names: Iterable[str]) -> list[DescribedTransaction]:
    """Return the transactional ids with these names, in their order; fail with the names that do not exist."""
    return describe_existing(
        names, connection.transactions.described, _is_unknown, kind="transactional id", next_step=HINT_TRANSACTIONS
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
        raise CommandFailed(f"no topic {', '.join(missing)}; {HINT_TOPICS}")
    partitions = []
    for name in topics or sorted(topics_by_name):
        leaders = topics_by_name[name].leaders
        absent = [str(index) for index in only if index not in leaders]
        if absent:
            raise CommandFailed(f"{name} has no partition {', '.join(absent)}; it has 0 to {len(leaders) - 1}")
        partitions += [TopicPartition(name, index) for index in sorted(only or leaders)]
    return partitions


def active_producers(
    connection: TransactionConnection, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ActiveProducer]]:
    """Return the producers of each partition; fail if one of the partitions returns an error."""
    if broker_id is not None and broker_id not in connection.cluster.nodes():
        raise CommandFailed(f"no broker {broker_id}; `moldau cluster info` shows the brokers there are")
    producers_of = {}
    for partition, producers in connection.transactions.producers(partitions, broker_id).items():
        if isinstance(producers, KafkaError):
            raise kafka_failure(producers, f"{partition.topic} partition {partition.partition}")
        producers_of[partition] = producers
    return producers_of
