"""Replicas that move from one directory of a broker to another: how far they are, and how to begin."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from moldau.base.errors import ErrorCode
from moldau.cli.kafka.java.exceptions import message_of
from moldau.cli.kafka.reassignment.lines import Terse
from moldau.cli.kafka.tool import ToolFailed
from moldau.client import broker_admin
from moldau.client.cluster_admin import ClusterAdmin
from moldau.client.cluster_values import Replica, ReplicaLogDir

RETRY_SECONDS: Final = 0.1


def is_moving(found: ReplicaLogDir) -> bool:
    return found.current is not None and found.future is not None


def status_line(replica: Replica, found: ReplicaLogDir, wanted: str) -> str:
    """How far a replica is on its way to the directory it is wanted in."""
    where, broker = replica.where, replica.broker
    if found.current is None:
        return (
            f"Partition {where} is not found in any live log dir on broker {broker}."
            " There is likely an offline log directory on the broker."
        )
    if found.future is None:
        if found.current == wanted:
            return f"Reassignment of replica {replica} completed successfully."
        return f"Partition {where} on broker {broker} is not being moved from log dir {found.current} to {wanted}."
    if found.future == wanted:
        return f"Reassignment of replica {replica} is still in progress."
    return f"Partition {where} on broker {broker} is being moved to log dir {found.future} instead of {wanted}."


def by_broker_first(replica: Replica) -> tuple[int, str, int]:
    """The order in which Kafka names replicas."""
    return replica.broker, replica.topic, replica.partition


def begin(
    admin: ClusterAdmin,
    wanted: Mapping[Replica, str],
    timeout_ms: int,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Asks until every move has begun: a replica that is only just coming to its broker cannot be moved there yet."""
    pending = dict(wanted)
    deadline = now() + timeout_ms / 1000
    while True:
        for replica in sorted(_begun(admin, pending), key=by_broker_first):
            directory = pending.pop(replica)
            print(
                f"Successfully started moving log directory to {directory} for replica {replica.where}"
                f" with broker {replica.broker} "
            )
        if not pending:
            return
        if now() >= deadline:
            left = ",".join(map(str, sorted(pending, key=by_broker_first)))
            moves = "move" if len(pending) == 1 else "moves"
            raise Terse(f"Timed out before log directory {moves} could be started for: {left}")
        time.sleep(RETRY_SECONDS)


def _begun(admin: ClusterAdmin, wanted: Mapping[Replica, str]) -> list[Replica]:
    begun = []
    for replica, refusal in broker_admin.move_replicas(admin, wanted).items():
        if refusal is None:
            begun.append(replica)
        elif refusal.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise ToolFailed(f"Failed to alter dir for {replica}: {message_of(refusal)}")
    return begun
