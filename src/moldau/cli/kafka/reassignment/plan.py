"""The JSON of kafka-reassign-partitions: the new replicas of partitions, as a person or --generate wrote it. Pure.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/data"]}]}

Directories are optional; `any` leaves the choice to the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from moldau.base.ids import TopicPartition
from moldau.cli.kafka import json_input
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.cluster_values import Replica

K = TypeVar("K")

ANY_LOG_DIR: Final = "any"
VERSION: Final = 1

Replicas = Mapping[TopicPartition, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Partitions in the order of the file, possibly with duplicates; directories only where the file names one."""

    rows: Sequence[tuple[TopicPartition, Sequence[int]]]
    log_dirs: Mapping[Replica, str]

    @property
    def replicas(self) -> dict[TopicPartition, Sequence[int]]:
        return dict(self.rows)

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition, _ in self.rows})


def parse_plan(text: str) -> Plan:
    if not text:
        raise ToolFailed("The input string shouldn't be empty")
    try:
        content = json_input.as_object(json_input.parse(text))
    except ValueError as error:
        raise ToolFailed(f"{error}: the file is not valid JSON") from error
    _check_version(content)
    rows: list[tuple[TopicPartition, Sequence[int]]] = []
    log_dirs: dict[Replica, str] = {}
    for row in json_input.as_array(content.get("partitions", [])):
        partition, replicas, directories = _row(json_input.as_object(row))
        rows.append((partition, replicas))
        for broker, directory in zip(replicas, directories, strict=True):
            if directory != ANY_LOG_DIR:
                log_dirs[Replica(*partition, broker)] = directory
    return Plan(rows, log_dirs)


def _row(fields: dict[str, Any]) -> tuple[TopicPartition, list[int], list[str]]:
    topic = json_input.text(json_input.field(fields, "topic"))
    partition = TopicPartition(topic, json_input.integer(json_input.field(fields, "partition")))
    replicas = json_input.integers(json_input.field(fields, "replicas"))
    directories = json_input.texts(fields.get("log_dirs", [ANY_LOG_DIR] * len(replicas)))
    if len(replicas) != len(directories):
        raise ToolFailed(
            f"Size of replicas list {java_list(replicas)} is different from size of log dirs list"
            f" {java_list(directories)} for partition {partition}"
        )
    return partition, replicas, directories


def _check_version(content: dict[str, Any]) -> None:
    version = json_input.integer(content.get("version", VERSION))
    if version != VERSION:
        raise ToolFailed(f"Not supported version field value {version}")


def check_for_execution(plan: Plan) -> None:
    """Make the checks that --execute makes and --verify does not."""
    if not plan.rows:
        raise ToolFailed("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in plan.rows):
        raise ToolFailed("Partition replica list cannot be empty")
    if duplicate_partitions := sorted(duplicates(partition for partition, _ in plan.rows)):
        raise ToolFailed(
            f"Partition reassignment contains duplicate topic partitions: {','.join(map(str, duplicate_partitions))}"
        )
    repeated = [(partition, sorted(duplicates(replicas))) for partition, replicas in plan.rows]
    problems = [
        f"{partition} contains multiple entries for {','.join(map(str, ids))}" for partition, ids in repeated if ids
    ]
    if problems:
        raise ToolFailed(f"Partition replica lists may not contain duplicate entries: {'. '.join(problems)}")


def parse_topics(text: str) -> list[str]:
    """Parse `{"topics": [{"topic": "t"}], "version": 1}`."""
    try:
        parsed = json_input.parse(text)
    except ValueError as error:
        raise ToolFailed("The input string is not a valid JSON") from error
    content = json_input.as_object(parsed)
    _check_version(content)
    rows = [json_input.as_object(row) for row in json_input.as_array(content.get("topics", []))]
    topics = [json_input.text(json_input.field(row, "topic")) for row in rows]
    if repeated := sorted(duplicates(topics)):
        raise ToolFailed(f"List of topics to reassign contains duplicate entries: {java_list(repeated)}")
    return topics


def parse_brokers(text: str) -> list[int]:
    """Parse `1,2,3`."""
    # Java's split drops empty parts at the end, unless there is no comma.
    stripped = text.rstrip(",")
    brokers = [_broker(part) for part in stripped.split(",")] if stripped or not text else []
    if repeated := sorted(duplicates(brokers)):
        raise ToolFailed(f"Broker list contains duplicate entries: {java_list(repeated)}")
    return brokers


def _broker(text: str) -> int:
    try:
        return parse_integer(text)
    except ValueError as error:
        raise ToolFailed(str(error)) from None


def duplicates(items: Iterable[K]) -> list[K]:
    return [item for item, count in Counter(items).items() if count > 1]


def java_list(items: Iterable[object]) -> str:
    return f"[{', '.join(map(str, items))}]"


def plan_json(replicas: Mapping[TopicPartition, Sequence[int]], log_dirs: Mapping[Replica, str]) -> str:
    """Return one line, as --execute and --generate print it, which can be saved as --reassignment-json-file."""
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas[partition]),
            "log_dirs": [log_dirs.get(Replica(*partition, broker), ANY_LOG_DIR) for broker in replicas[partition]],
        }
        for partition in sorted(replicas)
    ]
    return json_input.compact_json({"version": VERSION, "partitions": rows})
