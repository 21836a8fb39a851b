"""How `moldau transaction` reaches the transactions of a cluster, and what it says of ids that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.cluster.connect import (
    ANSWER_SECONDS,
    COORDINATOR_MS,
    SHOW_TOPICS,
    SHOW_TRANSACTIONS,
    answering_cluster,
    existing,
    kafka_failure,
)
from moldau.cli.connect import Broker, CommandFailed
from moldau.client.cluster import Cluster
from moldau.client.transaction_values import ActiveProducer, DescribedTransaction
from moldau.client.transactions import Transactions


class TransactionClient(NamedTuple):
    transactions: Transactions
    cluster: Cluster


@contextmanager
def transaction_client(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[TransactionClient]:
    """The transactions of a cluster that answers; whatever goes wrong inside is told in one line."""
    with answering_cluster(broker, answer_seconds) as cluster:
        yield TransactionClient(Transactions(cluster, COORDINATOR_MS), cluster)


def existing_transactions(client: TransactionClient, names: Iterable[str]) -> list[DescribedTransaction]:
    """The transactional ids of these names, in their order; says which of them do not exist."""
    return existing(names, client.transactions.described, _is_unknown, "transactional id", SHOW_TRANSACTIONS)


def _is_unknown(said: DescribedTransaction | KafkaError) -> bool:
    return isinstance(said, KafkaError) and said.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def existing_partitions(client: TransactionClient, topics: Sequence[str], only: Sequence[int]) -> list[TopicPartition]:
    """All partitions of these topics, or only those of these numbers; of all topics where none is named."""
    known = client.cluster.topics()
    missing = [name for name in topics if name not in known]
    if missing:
        raise CommandFailed(f"no topic {', '.join(missing)}; {SHOW_TOPICS}")
    found = []
    for name in topics or sorted(known):
        leaders = known[name].leaders
        absent = [str(index) for index in only if index not in leaders]
        if absent:
            raise CommandFailed(f"{name} has no partition {', '.join(absent)}; it has 0 to {len(leaders) - 1}")
        found += [TopicPartition(name, index) for index in sorted(only or leaders)]
    return found


def active_producers(
    client: TransactionClient, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ActiveProducer]]:
    """Who writes to each partition; fails where one of them is not told."""
    if broker_id is not None and broker_id not in client.cluster.nodes():
        raise CommandFailed(f"no broker {broker_id}; `moldau cluster info` shows the brokers there are")
    found = {}
    for where, said in client.transactions.producers(partitions, broker_id).items():
        if isinstance(said, KafkaError):
            raise kafka_failure(said, f"{where.topic} partition {where.partition}")
        found[where] = said
    return found
