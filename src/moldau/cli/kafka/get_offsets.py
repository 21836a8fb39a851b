"""kafka-get-offsets: prints the first, last or timed offset of partitions, one `topic:partition:offset` per line.

A partition without such an offset has no line. Nothing is changed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import INT64_MAX, PARTITION_MAX
from moldau.cli.flags import Arguments, Flag, ToolFlags
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.leaders import Leaders, ask_broker, ask_leaders, leaders_at
from moldau.cli.kafka.java.exceptions import exception_text
from moldau.cli.kafka.tool import ToolFailed, print_to_stderr, run
from moldau.cli.kafka.topics import include_list

TIMES: Final = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
"""The special timestamps of ListOffsets."""
RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")

PartitionFilter = Callable[[TopicPartition], bool]

FLAGS = ToolFlags(
    "An interactive shell for getting topic-partition offsets.",
    (
        Flag(
            "bootstrap-server",
            "REQUIRED. Brokers, HOST1:PORT1,HOST2:PORT2.",
            "HOST1:PORT1,...",
            former_names=("broker-list",),
        ),
        Flag(
            "topic-partitions",
            "Which partitions: a comma-separated list of TOPIC:PARTITIONS, where TOPIC is a regular expression and"
            " PARTITIONS a number, a range 0-3 without its end, 5- or -3. Either part may be left out.",
            "topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
        ),
        Flag("topic", "Topics that match a regular expression. Default: all.", "topic"),
        Flag("partitions", "A comma-separated list of partitions. Default: all.", "partition ids"),
        Flag(
            "time",
            "The offset of the first record at or after this time.",
            "<timestamp> / -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local /"
            " -5 or latest-tiered / -6 or earliest-pending-upload",
            default="latest",
        ),
        Flag("command-config", "A properties file with settings of the client.", "config file"),
        Flag("exclude-internal-topics", "Leave out internal topics."),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-get-offsets", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    arguments.require("bootstrap-server")
    try:
        _print_offsets(arguments)
    except ToolFailed as error:
        raise ToolFailed(f"Error occurred: {error}") from error
    return 0


def _print_offsets(arguments: Arguments) -> None:
    matches = _filter(arguments)
    timestamp = parse_time(arguments.single_value("time") or "latest")
    java_config = properties.load(arguments.single_value("command-config"))
    find = partial(leaders_at, arguments.single_value("bootstrap-server") or "", java_config)
    metadata = find()
    excluded = metadata.internal_topics if arguments.has("exclude-internal-topics") else frozenset()
    partitions = [partition for partition in metadata.leaders if matches(partition) and partition.topic not in excluded]
    if not partitions:
        raise ToolFailed("Could not match any topic-partitions with the specified filters")
    offsets = _offsets(metadata, partitions, timestamp, java_config, find)
    for partition in sorted(offsets, key=str):
        print(f"{partition.topic}:{partition.partition}:{offsets[partition]}")


def parse_time(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    # int() also accepts underscores and blanks, which Java refuses.
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) and -INT64_MAX - 1 <= int(text) <= INT64_MAX:
        return int(text)
    listed = " / ".join(f"{number} or {name}" for name, number in TIMES.items())
    raise ToolFailed(f"Malformed time argument {text}. Please use {listed}, or a specified long format timestamp")


def _filter(arguments: Arguments) -> PartitionFilter:
    rules = arguments.single_value("topic-partitions")
    if rules is not None:
        if arguments.has("topic") or arguments.has("partitions"):
            raise ToolFailed("--topic-partitions cannot be used with --topic or --partitions")
        parsed_rules = [parse_rule(rule) for rule in rules.split(",")]
        return lambda partition: any(rule(partition) for rule in parsed_rules)
    topics = include_list(arguments.single_value("topic"))
    listed = arguments.single_value("partitions")
    if listed is None:
        return lambda partition: topics.fullmatch(partition.topic) is not None
    if not re.fullmatch(r"[+-]?[0-9]+(,[+-]?[0-9]+)*", listed):
        raise ToolFailed(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {listed}"
        )
    indexes = set(map(int, listed.split(",")))
    return lambda partition: topics.fullmatch(partition.topic) is not None and partition.partition in indexes


def parse_rule(rule: str) -> PartitionFilter:
    """Parse `topic:1`, `topic:0-3` (without 3), `topic:5-`, `topic:-3`, `topic` or `:1`."""
    match = RULE.fullmatch(rule)
    if match is None:
        raise ToolFailed(f"Invalid rule specification: {rule}")
    topics = include_list(match[1] or None)
    if match[2]:
        low, high = int(match[2]), int(match[2]) + 1
    else:
        low, high = int(match[3] or 0), int(match[4] or PARTITION_MAX)
    return lambda partition: low <= partition.partition < high and topics.fullmatch(partition.topic) is not None


def _offsets(
    metadata: Leaders,
    partitions: Sequence[TopicPartition],
    timestamp: int,
    java_config: dict[str, str],
    find: Callable[[], Leaders],
) -> dict[TopicPartition, int]:
    from moldau.client.requests.partitions import list_offsets

    for partition in partitions:
        if metadata.leaders[partition] not in metadata.brokers:
            print_to_stderr(
                f"Skip getting offsets for topic-partition {partition} since it does not have a leader right now."
            )

    def ask(address: tuple[str, int], topics: dict[str, list[int]]) -> dict[TopicPartition, int | KafkaError]:
        at = {TopicPartition(name, index): timestamp for name, indexes in topics.items() for index in indexes}
        return list_offsets(partial(ask_broker, address, java_config), at)

    offsets: dict[TopicPartition, int] = {}
    for partition, answer in ask_leaders(metadata, partitions, ask, find).items():
        if isinstance(answer, int):
            if answer >= 0:
                offsets[partition] = answer
        else:
            reason = exception_text(answer) if isinstance(answer, KafkaError) else str(answer)
            print_to_stderr(f"Skip getting offsets for topic-partition {partition} due to error: {reason}")
    return offsets


if __name__ == "__main__":
    sys.exit(main())
