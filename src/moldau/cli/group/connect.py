"""How `moldau group` connects to the groups of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moldau.cli.cluster.connect import COORDINATOR_TIMEOUT_MS, answering_cluster
from moldau.cli.connect import ANSWER_SECONDS, Broker
from moldau.operations.groups import GroupConnection, connect_groups


@contextmanager
def group_connection(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[GroupConnection]:
    """Yield the groups of a cluster that answers.

    Inside the block, turn error codes, lost connections and malformed responses into CommandFailed, which is printed as
    one line.
    """
    with answering_cluster(broker, answer_seconds) as cluster:
        yield connect_groups(cluster, COORDINATOR_TIMEOUT_MS)
