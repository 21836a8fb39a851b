"""How `moldau transaction` connects to the transactions of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moldau.cli.cluster.connect import COORDINATOR_TIMEOUT_MS, answering_cluster
from moldau.cli.connect import ANSWER_SECONDS, Broker
from moldau.client.admin.transactions import Transactions
from moldau.operations.transactions import TransactionConnection


@contextmanager
def transaction_connection(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[TransactionConnection]:
    """Yield the transactions of a cluster that answers.

    Inside the block, turn error codes, lost connections and malformed responses into CommandFailed, which is printed as
    one line.
    """
    with answering_cluster(broker, answer_seconds) as cluster:
        yield TransactionConnection(Transactions(cluster, COORDINATOR_TIMEOUT_MS), cluster)
