"""What kafka-reassign-partitions says of moves under way, done or refused, in Kafka's words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.kafka.java.exceptions import message_of
from moldau.cli.kafka.reassignment.plan import Replicas
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.cluster_values import PartitionReplicas, Reassignment


class Terse(ToolFailed):
    """Told without the word Error before it, as Kafka tells what a person may well have meant to try."""


def reassignment_line(where: TopicPartition, move: Reassignment) -> str:
    adding = f" adding: {ids(move.adding)}." if move.adding else ""
    removing = f" removing: {ids(move.removing)}." if move.removing else ""
    return f"{where}: replicas: {ids(move.replicas)}.{adding}{removing}"


def ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def status_lines(
    wanted: Replicas,
    under_way: Mapping[TopicPartition, Reassignment],
    current: Mapping[TopicPartition, PartitionReplicas],
) -> list[str]:
    """How far each partition is. One that does not exist has no replicas."""
    lines = []
    for where in sorted(wanted):
        replicas = tuple(current[where].replicas) if where in current else ()
        if where in under_way:
            lines.append(f"Reassignment of partition {where} is still in progress.")
        elif replicas == tuple(wanted[where]):
            lines.append(f"Reassignment of partition {where} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {where}, but replica set is {ids(replicas)}"
                f" rather than {ids(wanted[where])}."
            )
    return lines


def refuse(title: str, outcomes: Mapping[TopicPartition, KafkaError | None]) -> None:
    """Raises all that was refused, a line each."""
    refused = {where: refusal for where, refusal in outcomes.items() if refusal is not None}
    if refused:
        raise Terse("\n".join([title, *(f"{where}: {message_of(refused[where])}" for where in sorted(refused))]))
