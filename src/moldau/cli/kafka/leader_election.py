"""kafka-leader-election: elects the preferred leaders of partitions, or any replica where none is in sync.

The file names partitions: {"partitions": [{"topic": "t", "partition": 0}]}.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka import json_input
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.admin import connect_to_brokers
from moldau.cli.kafka.java.exceptions import WRAPPED, exception_text
from moldau.cli.kafka.reassignment.plan import duplicates, java_list
from moldau.cli.kafka.tool import ToolFailed, run
from moldau.client.admin.cluster_values import ElectionType

CHOICES: Final = ("topic", "all-topic-partitions", "path-to-json-file")
FLAGS = ToolFlags(
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are"
    " preferred replicas and unclean replicas.",
    (
        Flag("bootstrap-server", "REQUIRED: Brokers to connect to, HOST:PORT.", "host:port"),
        Flag(
            "admin.config",
            "A properties file with settings of the client.",
            "config file",
            replaced_by="command-config",
        ),
        Flag("command-config", "A properties file with settings of the client.", "Config file"),
        Flag(
            "path-to-json-file",
            'The partitions: {"partitions": [{"topic": "foo", "partition": 1}]}.',
            "Path to JSON file",
        ),
        Flag("topic", "The topic of the one partition to elect a leader for.", "topic name"),
        Flag("partition", "With --topic: the partition.", "partition id", "Integer"),
        Flag("all-topic-partitions", "Elect leaders for all partitions that need one."),
        Flag(
            "election-type",
            "REQUIRED: preferred, where the leader is not the first replica; or unclean, where there is no leader:"
            " records may be lost.",
            "election type",
            "ElectionType",
        ),
    ),
    warning="Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead.",
    conflict_message='Option "[{old}]" can\'t be used with option "[{new}]"',
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-leader-election", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    kind = _check(arguments)
    partitions = _partitions(arguments)
    java_config = properties.load(arguments.single_value("command-config"))
    try:
        with connect_to_brokers(arguments.single_value("bootstrap-server") or "", java_config) as admin:
            outcomes = admin.elect_leaders(kind, partitions)
    except KafkaError as error:
        raise _report_failure(error) from error
    return report(kind, outcomes)


def _check(arguments: Arguments) -> ElectionType:
    missing = [name for name in ("bootstrap-server", "election-type") if not arguments.has(name)]
    if missing:
        raise UsageError(f"Missing required option(s): {', '.join(missing)}")
    if sum(map(arguments.has, CHOICES)) != 1:
        raise UsageError(f"One and only one of the following options is required: {', '.join(CHOICES)}")
    if arguments.has("topic") and not arguments.has("partition"):
        raise UsageError("Missing required option(s): partition")
    if arguments.has("partition") and not arguments.has("topic"):
        raise UsageError("Option partition is only allowed if topic is used")
    kind = arguments.single_value("election-type") or ""
    if kind.upper() not in ElectionType.__members__:
        raise UsageError(f"Cannot parse argument '{kind}' of option election-type")
    return ElectionType[kind.upper()]


def _partitions(arguments: Arguments) -> list[TopicPartition] | None:
    """Return the partitions that flags or the JSON file name. None means all partitions."""
    path = arguments.single_value("path-to-json-file")
    if path is not None:
        return parse_partitions(json_input.read_file(path))
    topic, partition = arguments.single_value("topic"), arguments.integer("partition")
    return None if topic is None or partition is None else [TopicPartition(topic, partition)]


def parse_partitions(text: str) -> list[TopicPartition]:
    try:
        content = json_input.as_object(json_input.parse(text))
    except ValueError as error:
        raise ToolFailed("Replica election data is empty") from error
    if "partitions" not in content:
        raise ToolFailed('Replica election data is missing "partitions" field')
    partitions = [_partition(json_input.as_object(row)) for row in json_input.as_array(content["partitions"])]
    if repeated := sorted(duplicates(partitions)):
        raise ToolFailed(f"Replica election data contains duplicate partitions: {java_list(repeated)}")
    return partitions


def _partition(row: dict[str, Any]) -> TopicPartition:
    topic = json_input.text(json_input.field(row, "topic"))
    return TopicPartition(topic, json_input.integer(json_input.field(row, "partition")))


def _report_failure(error: KafkaError) -> ToolFailed:
    """Return the error to raise. Kafka prints the two most common errors on stdout too, so print them here."""
    message = {
        ErrorCode.REQUEST_TIMED_OUT: "Timeout waiting for election results",
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorized to perform leader election",
    }.get(error.code)
    if message is None:
        return ToolFailed(WRAPPED + exception_text(error))
    print(message)
    return ToolFailed(message)


def report(kind: ElectionType, outcomes: Mapping[TopicPartition, KafkaError | None]) -> int:
    elected = [partition for partition, error in outcomes.items() if error is None]
    errors = {partition: error for partition, error in outcomes.items() if error is not None}
    not_needed = [partition for partition, error in errors.items() if error.code is ErrorCode.ELECTION_NOT_NEEDED]
    if elected:
        print(f"Successfully completed leader election ({kind.name}) for partitions {_listed(elected)}")
    if not_needed:
        print(f"Valid replica already elected for partitions {_listed(not_needed)}")
    failed = sorted(partition for partition in errors if partition not in not_needed)
    for partition in failed:
        reason = exception_text(errors[partition])
        print(f"Error completing leader election ({kind.name}) for partition: {partition}: {reason}")
    if failed:
        raise ToolFailed(f"{len(failed)} replica(s) could not be elected")
    return 0


def _listed(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


if __name__ == "__main__":
    sys.exit(main())
