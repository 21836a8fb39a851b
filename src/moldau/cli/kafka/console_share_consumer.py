"""kafka-console-share-consumer: prints the records that it gets as a member of a share group, and acknowledges them.

Each printed record is accepted, or with --reject or --release rejected or released. The broker releases what it has got
and not printed when it ends. console/print_loop.py prints the records.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError, key_values
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.console.print_loop import FORMATTERS, PrintLoop, chosen_formatter, run_to_end
from moldau.cli.kafka.tool import run

if TYPE_CHECKING:
    from moldau.client.confluent_share import AcknowledgeType, ShareConsumer

GROUP: Final = "console-share-consumer"
GROUP_MISMATCH: Final = (
    "The group ids provided in different places (directly using '--group', via '--consumer-property', or via"
    " '--consumer-config') do not match. Detected group ids: {ids}"
)
TOOL_CONFIG: Final = {"client.id": GROUP, "share.acknowledgement.mode": "explicit"}

FLAGS = ToolFlags(
    "This tool helps to read data from Kafka topics using share groups and outputs it to standard output.",
    (
        Flag("bootstrap-server", "REQUIRED: Brokers, HOST1:PORT1,HOST2:PORT2.", "server to connect to"),
        Flag("topic", "REQUIRED: The topic to read.", "topic"),
        Flag(
            "group",
            f"The share group to be a member of. Without it: {GROUP}. A new group begins at the end, unless its config"
            " share.auto.offset.reset (kafka-configs --entity-type groups) is earliest.",
            "share group id",
        ),
        Flag("reject", "Reject the records: the group does not get them again."),
        Flag("release", "Release the records: the group gets them again, until its limit of deliveries."),
        Flag("reject-message-on-error", "Reject a record that cannot be printed, and go on."),
        Flag("max-messages", "End after this many records.", "num_messages", "Integer"),
        Flag("timeout-ms", "End when no record came for this long.", "timeout_ms", "Integer"),
        Flag("formatter", f"How records are printed: {', '.join(FORMATTERS)}.", "class"),
        Flag(
            "formatter-property",
            "What is printed: print.timestamp, print.key, print.offset, print.delivery, print.epoch, print.partition,"
            " print.headers, print.value (true or false), key.separator, line.separator, headers.separator,"
            " null.literal, key.deserializer, value.deserializer, headers.deserializer. Repeatable.",
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
        Flag("consumer-config", "A file of consumer properties.", "config file", replaced_by="command-config"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-console-share-consumer", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    if not arguments.has("topic"):
        raise UsageError("--topic is a required argument")
    arguments.require("bootstrap-server")
    if arguments.has("reject") and arguments.has("release"):
        raise UsageError("At most one of --reject and --release may be specified.")
    java_config = properties.load(arguments.single_value("command-config"))
    java_config.update(key_values(arguments.values_of("command-property")))
    group_id = _group_id(arguments, java_config)
    formatter = chosen_formatter(arguments)
    limit, timeout_ms = arguments.integer("max-messages"), arguments.integer("timeout-ms")
    servers = arguments.single_value("bootstrap-server") or ""
    user_config = {name: value for name, value in java_config.items() if name != "share.acknowledgement.mode"}
    consumer = clients.share_consumer(servers, user_config, {**TOOL_CONFIG, "group.id": group_id})
    consumer.subscribe([arguments.single_value("topic") or ""])
    records = SharedRecords(consumer, _acknowledge_type(arguments))
    skip_errors = arguments.has("reject-message-on-error")
    print_loop = PrintLoop(records, formatter, limit, timeout_ms, skip_errors, group_id)
    return run_to_end(print_loop, prints_events=arguments.has("enable-systest-events"))


def _group_id(arguments: Arguments, java_config: dict[str, str]) -> str:
    named = {group for group in (arguments.single_value("group"), java_config.get("group.id")) if group is not None}
    if len(named) > 1:
        raise UsageError(GROUP_MISMATCH.format(ids=", ".join(f"'{group}'" for group in sorted(named))))
    return named.pop() if named else GROUP


def _acknowledge_type(arguments: Arguments) -> AcknowledgeType:
    from moldau.client.confluent_share import AcknowledgeType

    if arguments.has("reject"):
        return AcknowledgeType.REJECT
    return AcknowledgeType.RELEASE if arguments.has("release") else AcknowledgeType.ACCEPT


class SharedRecords:
    """Records of a share consumer, acknowledged when they are printed. The broker is told with the next poll."""

    skipping = "rejected"

    def __init__(self, consumer: ShareConsumer, how: AcknowledgeType) -> None:
        self._consumer = consumer
        self._how = how

    def poll(self, wait_seconds: float, count: int) -> list[Any]:
        """Return the next batch; of the last one, no more than are printed: the others are not acknowledged."""
        with clients.client_errors():
            return list(self._consumer.poll(wait_seconds))[:count]

    def on_printed(self, records: Sequence[Any]) -> None:
        for record in records:
            self._consumer.acknowledge(record, self._how)

    def on_unprintable(self, record: Any, skipped: bool) -> None:
        """Reject it, or leave it unacknowledged if its error ends the tool."""
        from moldau.client.confluent_share import AcknowledgeType

        if skipped:
            self._consumer.acknowledge(record, AcknowledgeType.REJECT)

    def close(self) -> None:
        self._consumer.close()


if __name__ == "__main__":
    sys.exit(main())
