"""Moves of replicas from one directory of a broker to another: starting them, and their progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from moldau.base.errors import ErrorCode
from moldau.cli.kafka.java.exceptions import message_of
from moldau.cli.kafka.reassignment.lines import PlainFailure
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin import replicas as broker_admin
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.cluster_values import Replica, ReplicaLogDir

RETRY_SECONDS: Final = 0.1


def is_moving(log_dir: ReplicaLogDir) -> bool:
    return log_dir.current is not None and log_dir.future is not None


def status_line(replica: Replica, log_dir: ReplicaLogDir, target: str) -> str:
    """Return the progress of a replica on its way to the target directory."""
    partition, broker = replica.where, replica.broker
    if log_dir.current is None:
        return (
            f"Partition {partition} is not found in any live log dir on broker {broker}."
            " There is likely an offline log directory on the broker."
        )
    if log_dir.future is None:
        if log_dir.current == target:
            return f"Reassignment of replica {replica} completed successfully."
        return (
            f"Partition {partition} on broker {broker} is not being moved from log dir {log_dir.current} to {target}."
        )
    if log_dir.future == target:
        return f"Reassignment of replica {replica} is still in progress."
    return f"Partition {partition} on broker {broker} is being moved to log dir {log_dir.future} instead of {target}."


def broker_first_key(replica: Replica) -> tuple[int, str, int]:
    """Sort key: the order in which Kafka lists replicas."""
    return replica.broker, replica.topic, replica.partition


def start(
    admin: ClusterAdmin,
    targets: Mapping[Replica, str],
    timeout_ms: int,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Retry until every move has started: a replica cannot be moved before its broker has created it."""
    pending = dict(targets)
    deadline = now() + timeout_ms / 1000
    while True:
        for replica in sorted(_start_moves(admin, pending), key=broker_first_key):
            directory = pending.pop(replica)
            print(
                f"Successfully started moving log directory to {directory} for replica {replica.where}"
                f" with broker {replica.broker} "
            )
        if not pending:
            return
        if now() >= deadline:
            not_started = ",".join(map(str, sorted(pending, key=broker_first_key)))
            moves = "move" if len(pending) == 1 else "moves"
            raise PlainFailure(f"Timed out before log directory {moves} could be started for: {not_started}")
        time.sleep(RETRY_SECONDS)


def _start_moves(admin: ClusterAdmin, targets: Mapping[Replica, str]) -> list[Replica]:
    started = []
    for replica, error in broker_admin.move_replicas(admin, targets).items():
        if error is None:
            started.append(replica)
        elif error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise ToolFailed(f"Failed to alter dir for {replica}: {message_of(error)}")
    return started
