"""kafka-console-consumer: prints the records of topics as they arrive.

It joins the group named by a flag or property. If none is named, it joins a group with a random name and commits
nothing. With --partition it assigns that partition to itself and joins no group. console/print_loop.py prints the
records, console/record_lines.py defines how.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from moldau.base.limits import OFFSET_MAX
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError, key_values
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.console.print_loop import FORMATTERS, PrintLoop, chosen_formatter, run_to_end
from moldau.cli.kafka.tool import ToolFailed, run
from moldau.cli.stored_offsets import MEMBER_CONFIG, store_printed

if TYPE_CHECKING:
    from moldau.cli.records.pattern_subscription import PatternSubscription
    from moldau.client.cluster import Cluster
    from moldau.client.confluent import Consumer

RESET_POLICIES: Final = {"earliest": "earliest", "latest": "latest", "none": "error"}
"""librdkafka's names of Kafka's values of auto.offset.reset; it has no by_duration."""
ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
GROUP_MISMATCH: Final = (
    "The group ids provided in different places (directly using '--group', via '--consumer-property', or via"
    " '--consumer.config') do not match. Detected group ids: {ids}"
)

FLAGS = ToolFlags(
    "This tool helps to read data from Kafka topics and outputs it to standard output.",
    (
        Flag(
            "bootstrap-server",
            "REQUIRED: Brokers, HOST1:PORT1,HOST2:PORT2.",
            "server to connect to",
            former_names=("broker-list",),
        ),
        Flag("topic", "The topic to read.", "topic"),
        Flag("include", "Read all topics that match.", "Java regex (String)", former_names=("whitelist",)),
        Flag(
            "partition",
            "Read this partition only; from its end, unless --offset says otherwise.",
            "partition",
            "Integer",
        ),
        Flag("offset", "Where to begin: a number, earliest or latest.", "consume offset", default="latest"),
        Flag("from-beginning", "Begin with the oldest record, not with the next new one."),
        Flag("max-messages", "End after this many records.", "num_messages", "Integer"),
        Flag("timeout-ms", "End when no record came for this long.", "timeout_ms", "Long"),
        Flag("skip-message-on-error", "Leave out a record that cannot be printed."),
        Flag("group", "Read as a member of this consumer group.", "consumer group id"),
        Flag(
            "isolation-level",
            "read_committed leaves out transactions not committed; read_uncommitted reads all.",
            "String",
            default="read_uncommitted",
        ),
        Flag("formatter", f"How records are printed: {', '.join(FORMATTERS)}.", "class"),
        Flag(
            "formatter-property",
            "What is printed: print.timestamp, print.key, print.offset, print.epoch, print.partition, print.headers,"
            " print.value (true or false), key.separator, line.separator, headers.separator, null.literal,"
            " key.deserializer, value.deserializer, headers.deserializer. Repeatable.",
            "prop",
        ),
        Flag("property", "What is printed.", "prop", replaced_by="formatter-property"),
        Flag("formatter-config", "A file of formatter properties.", "config file"),
        Flag("key-deserializer", "How keys are read, such as LongDeserializer.", "deserializer for keys"),
        Flag("value-deserializer", "How values are read, such as LongDeserializer.", "deserializer for values"),
        Flag("enable-systest-events", "Print when the consumer has shut down."),
        Flag("command-property", "A property of the consumer, key=value. Repeatable.", "consumer_prop"),
        Flag("consumer-property", "A property of the consumer.", "consumer_prop", replaced_by="command-property"),
        Flag("command-config", "A file of consumer properties.", "config file"),
        Flag("consumer.config", "A file of consumer properties.", "config file", replaced_by="command-config"),
    ),
)


TOOL_CONFIG: Final = {
    "client.id": "console-consumer",
    "allow.auto.create.topics": True,
    "topic.metadata.refresh.interval.ms": 10_000,
    # When its queue is full, librdkafka waits a second by default, and reading a long topic is mostly this waiting.
    "fetch.queue.backoff.ms": 5,
}


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-console-consumer", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    java_config = properties.load(arguments.single_value("command-config"))
    java_config.update(key_values(arguments.values_of("command-property")))
    _check_flags(arguments, java_config)
    group_id = _group_id(arguments, java_config)
    reset = _reset_policy(arguments, java_config)
    start = _start_offset(arguments)
    formatter = chosen_formatter(arguments)
    limit = arguments.integer("max-messages")
    timeout_ms = arguments.integer("timeout-ms")
    servers = arguments.single_value("bootstrap-server") or ""
    if group_id is not None:
        clients.require_groups(servers, java_config)
    isolation_level = arguments.single_value("isolation-level")
    tool_config = {**TOOL_CONFIG, "auto.offset.reset": reset, "isolation.level": isolation_level}
    tool_config |= MEMBER_CONFIG | {"group.id": group_id} if group_id else _temporary_group(java_config)
    joined_group = None if arguments.has("partition") else str(tool_config["group.id"])
    # The user's properties override the tool's, and `reset` already is the user's auto.offset.reset.
    user_config = {name: java_config[name] for name in java_config if name != "auto.offset.reset"}
    consumer = clients.consumer(servers, user_config, tool_config)
    skip_errors = arguments.has("skip-message-on-error")
    stores_offsets = group_id is not None
    with closing(clients.cluster(servers, java_config)) as cluster:
        subscription = _subscribe_or_assign(arguments, consumer, cluster, start)
        records = MemberRecords(consumer, subscription, stores_offsets)
        print_loop = PrintLoop(records, formatter, limit, timeout_ms, skip_errors, joined_group)
        return run_to_end(print_loop, prints_events=arguments.has("enable-systest-events"))


def _temporary_group(java_config: dict[str, str]) -> dict[str, Any]:
    """Return the config of a group with a random name, as Kafka's console consumer uses it.

    The group commits nothing: a partition that is revoked and assigned again would be read from the start again.
    Cooperative rebalances leave the partitions where they are. The consumer protocol (KIP-848) always does so.
    """
    uses_consumer_protocol = java_config.get("group.protocol", "classic").lower() == "consumer"
    return {
        "group.id": f"{clients.TEMPORARY_GROUP}{random.randrange(100_000)}",
        "enable.auto.commit": False,
        **({} if uses_consumer_protocol else {"partition.assignment.strategy": "cooperative-sticky"}),
    }


def _check_flags(arguments: Arguments, java_config: dict[str, str]) -> None:
    arguments.require_exactly_one("topic", "include")
    arguments.require("bootstrap-server")
    if arguments.has("partition") and not arguments.has("topic"):
        raise UsageError("The topic is required when partition is specified.")
    if arguments.has("offset") and not arguments.has("partition"):
        raise UsageError("The partition is required when offset is specified.")
    if arguments.has("from-beginning") and arguments.has("offset"):
        raise UsageError("Options from-beginning and offset cannot be specified together.")
    if arguments.has("from-beginning") and java_config.get("auto.offset.reset", "earliest") != "earliest":
        reset = java_config["auto.offset.reset"]
        raise ToolFailed(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    level = arguments.single_value("isolation-level")
    if level not in ISOLATION_LEVELS:
        listed = ", ".join(ISOLATION_LEVELS)
        raise ToolFailed(f"Invalid value {level} for configuration isolation.level: String must be one of: {listed}")


def _group_id(arguments: Arguments, java_config: dict[str, str]) -> str | None:
    """Return the group named by flag or property. None means that none is named and a random one is joined."""
    group_ids = sorted(
        {group for group in (arguments.single_value("group"), java_config.get("group.id")) if group is not None}
    )
    if len(group_ids) > 1:
        raise UsageError(GROUP_MISMATCH.format(ids=", ".join(f"'{group}'" for group in group_ids)))
    if group_ids and arguments.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    return group_ids[0] if group_ids else None


def _reset_policy(arguments: Arguments, java_config: dict[str, str]) -> str:
    """Return librdkafka's auto.offset.reset: where a group without offsets begins, and where to go on after an offset
    that is out of range."""
    policy = "earliest" if arguments.has("from-beginning") else java_config.get("auto.offset.reset", "latest")
    if policy not in RESET_POLICIES:
        raise ToolFailed(
            f"Invalid value {policy} for configuration auto.offset.reset:"
            " The value must be either 'earliest', 'latest' or 'none' here"
        )
    return RESET_POLICIES[policy]


def _start_offset(arguments: Arguments) -> int | str:
    """Return where to start with --partition: an offset, `earliest` or `latest`."""
    if arguments.has("from-beginning"):
        return "earliest"
    text = arguments.single_value("offset") or ""
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > OFFSET_MAX:
        raise UsageError(
            f"The provided offset value '{text}' is incorrect."
            " Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(text)


def _subscribe_or_assign(
    arguments: Arguments, consumer: Consumer, cluster: Cluster, start: int | str
) -> PatternSubscription | None:
    """Subscribe to the topics, or assign the one partition of --partition.

    Return the subscription of --include, which must be refreshed to find new topics. Else return None.
    """
    from moldau.cli.kafka.console.group_member import subscribe
    from moldau.cli.kafka.console.standalone_consumer import assign_partition, first_offset

    topic = arguments.single_value("topic")
    index = arguments.integer("partition")
    if index is None:
        return subscribe(consumer, cluster, topic, arguments.single_value("include"))
    assign_partition(consumer, cluster, topic or "", index, first_offset(start))
    return None


class MemberRecords:
    """Records of a consumer; `stores_offsets` is true if its group commits what was printed."""

    skipping = "skipped"

    def __init__(self, consumer: Consumer, subscription: PatternSubscription | None, stores_offsets: bool) -> None:
        self._consumer = consumer
        self._subscription = subscription
        self._stores_offsets = stores_offsets

    def poll(self, wait_seconds: float, count: int) -> list[Any]:
        """Wait for a first record, and return it with those that have arrived by then."""
        if self._subscription is not None:
            self._subscription.refresh(time.monotonic())
        first = self._consumer.poll(wait_seconds)
        if first is None:
            return []
        return [first, *self._consumer.consume(count - 1, 0)] if count > 1 else [first]

    def on_printed(self, records: Sequence[Any]) -> None:
        if self._stores_offsets:
            store_printed(self._consumer, records)

    def on_unprintable(self, record: Any, skipped: bool) -> None:
        """Store also the offset of a record that cannot be printed, even if its error ends the tool. Otherwise the next
        run of this group would start with the same record and fail again."""
        self.on_printed([record])

    def close(self) -> None:
        self._consumer.close()


if __name__ == "__main__":
    sys.exit(main())
