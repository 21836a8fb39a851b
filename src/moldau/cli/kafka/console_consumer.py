"""kafka-console-consumer: prints the records of topics as they come.

It joins the group named by a flag, or a group with a random name, in which it commits nothing. Only a single partition
is read without a group. console/record_lines.py defines how a record is printed.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from moldau.cli.flags import Arguments, Flag, Flags, UsageError, key_values
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.console.record_lines import Formatter
from moldau.cli.kafka.tool import ToolFailed, complain, discard_stdout, run
from moldau.cli.stop_signals import Stop
from moldau.cli.stored_offsets import MEMBER_CONFIG, store_printed

if TYPE_CHECKING:
    from moldau.client.confluent import Consumer

POLL_SECONDS: Final = 0.2
"""The longest time until Ctrl-C is noticed."""
RECORDS_AT_ONCE: Final = 1000
ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
FORMATTERS: Final = (
    "DefaultMessageFormatter",
    "LoggingMessageFormatter",
    "NoOpMessageFormatter",
    "TransactionLogMessageFormatter",
    "OffsetsMessageFormatter",
    "GroupMetadataMessageFormatter",
)
"""By the last part of the class name; the last three are for the coordinators' logs."""
GROUP_MISMATCH: Final = (
    "The group ids provided in different places (directly using '--group', via '--consumer-property', or via"
    " '--consumer.config') do not match. Detected group ids: {ids}"
)

FLAGS = Flags(
    "This tool helps to read data from Kafka topics and outputs it to standard output.",
    (
        Flag(
            "bootstrap-server",
            "REQUIRED: Brokers, HOST1:PORT1,HOST2:PORT2.",
            "server to connect to",
            older=("broker-list",),
        ),
        Flag("topic", "The topic to read.", "topic"),
        Flag("include", "Read all topics that match.", "Java regex (String)", older=("whitelist",)),
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


OWN_CONFIG: Final = {
    "client.id": "console-consumer",
    "allow.auto.create.topics": True,
    "topic.metadata.refresh.interval.ms": 10_000,
    # When its queue is full, librdkafka waits a second by default: most of the time of reading a long topic.
    "fetch.queue.backoff.ms": 5,
}


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-console-consumer", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    java_config = properties.load(arguments.text("command-config"))
    java_config.update(key_values(arguments.texts("command-property")))
    _check(arguments, java_config)
    group = _group(arguments, java_config)
    start = _start(arguments, java_config)
    formatter = _formatter(arguments)
    limit = arguments.integer("max-messages")
    timeout_ms = arguments.integer("timeout-ms")
    servers = arguments.text("bootstrap-server") or ""
    if group is not None:
        clients.require_groups(servers, java_config)
    # Outside the range of a partition's offsets, librdkafka restarts at the end where reading began.
    own = {**OWN_CONFIG, "auto.offset.reset": "earliest" if start == "earliest" else "latest"}
    own["isolation.level"] = arguments.text("isolation-level")
    own |= MEMBER_CONFIG | {"group.id": group} if group else _temporary_group(java_config)
    consumer = clients.consumer(
        servers, {name: java_config[name] for name in java_config if name != "auto.offset.reset"}, own
    )
    reading = Reading(
        consumer, formatter, limit, timeout_ms, arguments.has("skip-message-on-error"), is_member=group is not None
    )
    return _read(arguments, reading, _source(arguments, consumer, start))


def _temporary_group(java_config: dict[str, str]) -> dict[str, Any]:
    """Return the config of a group with a random name, as Kafka's console consumer uses it. It commits nothing, so it
    must keep its partitions through a rebalance, or it would begin again."""
    is_server_side = java_config.get("group.protocol", "classic").lower() == "consumer"
    return {
        "group.id": f"console-consumer-{random.randrange(100_000)}",
        "enable.auto.commit": False,
        **({} if is_server_side else {"partition.assignment.strategy": "cooperative-sticky"}),
    }


def _check(arguments: Arguments, java_config: dict[str, str]) -> None:
    arguments.require_one("topic", "include")
    arguments.require("bootstrap-server")
    if arguments.has("partition") and not arguments.has("topic"):
        raise UsageError("The topic is required when partition is specified.")
    if arguments.has("offset") and not arguments.has("partition"):
        raise UsageError("The partition is required when offset is specified.")
    if arguments.has("from-beginning") and arguments.has("offset"):
        raise UsageError("Options from-beginning and offset cannot be specified together.")
    if arguments.has("group") and arguments.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    if arguments.has("from-beginning") and java_config.get("auto.offset.reset", "earliest") != "earliest":
        reset = java_config["auto.offset.reset"]
        raise ToolFailed(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    level = arguments.text("isolation-level")
    if level not in ISOLATION_LEVELS:
        listed = ", ".join(ISOLATION_LEVELS)
        raise ToolFailed(f"Invalid value {level} for configuration isolation.level: String must be one of: {listed}")


def _group(arguments: Arguments, java_config: dict[str, str]) -> str | None:
    """Return the group named by flag or property; None to read without one."""
    group_ids = sorted({group for group in (arguments.text("group"), java_config.get("group.id")) if group is not None})
    if len(group_ids) > 1:
        raise UsageError(GROUP_MISMATCH.format(ids=", ".join(f"'{group}'" for group in group_ids)))
    if group_ids and arguments.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    return group_ids[0] if group_ids else None


def _start(arguments: Arguments, java_config: dict[str, str]) -> int | str:
    """Return an offset, `earliest` or `latest`."""
    if arguments.has("from-beginning"):
        return "earliest"
    if not arguments.has("offset"):
        return java_config.get("auto.offset.reset", "latest")
    text = arguments.text("offset") or ""
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if not text.isdecimal():
        raise UsageError(
            f"The provided offset value '{text}' is incorrect."
            " Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(text)


class RecordFormatter(Protocol):
    """Turns records into the bytes to print, line ends included."""

    def lines(self, records: Iterable[Any]) -> bytes: ...


def _formatter(arguments: Arguments) -> RecordFormatter | None:
    name = (arguments.text("formatter") or FORMATTERS[0]).rpartition(".")[2]
    if name not in FORMATTERS:
        raise ToolFailed(f"--formatter {name} is unknown; use one of {', '.join(FORMATTERS)}")
    match name:
        case "NoOpMessageFormatter":
            return None
        case "TransactionLogMessageFormatter":
            from moldau.cli.kafka.log_dump.transaction_log_lines import transaction_log_formatter

            return transaction_log_formatter()
        case "OffsetsMessageFormatter" | "GroupMetadataMessageFormatter":
            from moldau.cli.kafka.log_dump.offsets_lines import group_metadata_formatter, offsets_formatter

            return offsets_formatter() if name.startswith("Offsets") else group_metadata_formatter()
    props = {**properties.load(arguments.text("formatter-config")), **key_values(arguments.texts("formatter-property"))}
    for flag in ("key-deserializer", "value-deserializer"):
        if arguments.has(flag):
            props[flag.replace("-", ".")] = arguments.text(flag) or ""
    return Formatter(props)


def _source(arguments: Arguments, consumer: Consumer, start: int | str) -> Any:
    """Return a subscription to refresh, or None if librdkafka finds new partitions by itself."""
    from moldau.cli.kafka.console.group_member import subscribe
    from moldau.cli.kafka.console.standalone_consumer import assign_partition, first_offset

    topic = arguments.text("topic")
    index = arguments.integer("partition")
    if index is None:
        return subscribe(consumer, topic, arguments.text("include"))
    assign_partition(consumer, topic or "", index, first_offset(start))
    return None


class Reading:
    """The loop: polls records, prints and counts them, until the limit or the timeout."""

    def __init__(
        self,
        consumer: Consumer,
        formatter: RecordFormatter | None,
        limit: int | None,
        timeout_ms: int | None,
        skip_errors: bool,
        is_member: bool,
    ) -> None:
        self._consumer = consumer
        self._formatter = formatter
        self._limit = limit
        self._timeout = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
        self._skip_errors = skip_errors
        self._is_member = is_member
        self._reported: set[str] = set()
        self.count = 0

    def run(self, subscription: Any, stop: Stop) -> None:
        out = sys.stdout.buffer
        last = time.monotonic()
        while not stop.status and (self._limit is None or self._limit < 0 or self.count < self._limit):
            now = time.monotonic()
            if self._timeout is not None and now - last >= self._timeout:
                return
            if subscription is not None:
                subscription.refresh(now)
            wait = POLL_SECONDS if self._timeout is None else min(POLL_SECONDS, self._timeout - (now - last))
            records = self._poll(wait)
            if records:
                self._print(out, records)
                last = time.monotonic()

    def close(self) -> None:
        self._consumer.close()

    def _poll(self, wait_seconds: float) -> list[Any]:
        """Wait for a first record, then take those that have arrived too."""
        room = RECORDS_AT_ONCE
        if self._limit is not None and self._limit >= 0:
            room = min(room, self._limit - self.count)
        first = self._consumer.poll(max(0.0, wait_seconds))
        if first is None:
            return []
        records = [first, *self._consumer.consume(room - 1, 0)] if room > 1 else [first]
        return [record for record in records if self._is_record(record)]

    def _is_record(self, record: Any) -> bool:
        """Return whether this is a record, not an error in place of one. Non-fatal errors are reported once."""
        error = record.error()
        if error is None:
            return True
        line = clients.describe_error(error)
        if error.fatal():
            raise clients.ClientError(error)
        if line not in self._reported:
            self._reported.add(line)
            complain(f"WARN {line}")
        return False

    def _print(self, out: IO[bytes], records: list[Any]) -> None:
        try:
            lines = b"" if self._formatter is None else self._formatter.lines(records)
        except ToolFailed:
            self._print_one_by_one(out, records)
            return
        # Count before writing: Ctrl-C may come in between.
        self.count += len(records)
        out.write(lines)
        out.flush()
        self._store_offsets(records)

    def _store_offsets(self, records: list[Any]) -> None:
        if self._is_member:
            store_printed(self._consumer, records)

    def _print_one_by_one(self, out: IO[bytes], records: list[Any]) -> None:
        """Print the records before the one that cannot be printed; then fail, or skip it if asked to."""
        assert self._formatter is not None
        for record in records:
            self.count += 1
            try:
                out.write(self._formatter.lines([record]))
            except ToolFailed as error:
                if not self._skip_errors:
                    raise
                complain(f"WARN {error}; the record is skipped")
            finally:
                # Also for one that cannot be printed; else the group would never get past it.
                self._store_offsets([record])
            out.flush()


def _read(arguments: Arguments, reading: Reading, subscription: Any) -> int:
    """Run the loop to its end, and print how many records were read."""
    stop = Stop()
    try:
        with stop:
            reading.run(subscription, stop)
    except BrokenPipeError:
        # `| head` closed the pipe. Kafka ends with status 0 then.
        reading.close()
        discard_stdout()
        return 0
    except BaseException:
        _finish(arguments, reading)
        raise
    _finish(arguments, reading)
    return stop.status


def _finish(arguments: Arguments, reading: Reading) -> None:
    if arguments.has("enable-systest-events"):
        print("shutdown_complete")
    reading.close()
    complain(f"Processed a total of {reading.count} messages")


if __name__ == "__main__":
    sys.exit(main())
