"""The lines of kafka-reassign-partitions about active, completed and refused moves, in Kafka's words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.kafka.java.exceptions import message_of
from moldau.cli.kafka.reassignment.plan import Replicas
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.cluster_values import PartitionReplicas, Reassignment


class PlainFailure(ToolFailed):
    """An error that Kafka's tool expects, and therefore prints without "Error: " before it."""


def reassignment_line(partition: TopicPartition, move: Reassignment) -> str:
    adding = f" adding: {ids(move.adding)}." if move.adding else ""
    removing = f" removing: {ids(move.removing)}." if move.removing else ""
    return f"{partition}: replicas: {ids(move.replicas)}.{adding}{removing}"


def ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def status_lines(
    target: Replicas,
    active: Mapping[TopicPartition, Reassignment],
    current: Mapping[TopicPartition, PartitionReplicas],
) -> list[str]:
    """Return the progress of each partition. One that does not exist has no replicas."""
    lines = []
    for partition in sorted(target):
        replicas = tuple(current[partition].replicas) if partition in current else ()
        if partition in active:
            lines.append(f"Reassignment of partition {partition} is still in progress.")
        elif replicas == tuple(target[partition]):
            lines.append(f"Reassignment of partition {partition} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {partition}, but replica set is {ids(replicas)}"
                f" rather than {ids(target[partition])}."
            )
    return lines


def raise_for_errors(title: str, outcomes: Mapping[TopicPartition, KafkaError | None]) -> None:
    """Raise all errors, one per line."""
    errors = {partition: error for partition, error in outcomes.items() if error is not None}
    if errors:
        raise PlainFailure(
            "\n".join([title, *(f"{partition}: {message_of(errors[partition])}" for partition in sorted(errors))])
        )
