"""kafka-console-consumer: prints the records of topics as they come.

It is a member of a group like any other: of the one it is told, or of one with a name made up for this once, where it
commits nothing. Only a single partition is read without a group. How a record is printed is in console/record_lines.py.
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
from moldau.cli.kafka.tool import ToolFailed, complain, forget_stdout, run
from moldau.cli.stop_signals import Stop
from moldau.cli.stored_offsets import MEMBER_CONFIG, store_printed

if TYPE_CHECKING:
    from moldau.client.confluent import Consumer

POLL_SECONDS: Final = 0.2
"""The longest that Ctrl-C waits."""
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
"""By the last part of the class name; the last three are for the logs of coordinators."""
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
        Flag("from-beginning", "Begin with the first record that is kept, not with the next that comes."),
        Flag("max-messages", "End after so many records.", "num_messages", "Integer"),
        Flag("timeout-ms", "End when no record came for so long.", "timeout_ms", "Long"),
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
    # librdkafka's own second of rest when its queue is full would be most of the time it takes to read a long topic.
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
    # Beyond the end or before the first record of a partition, librdkafka goes where the reading began.
    own = {**OWN_CONFIG, "auto.offset.reset": "earliest" if start == "earliest" else "latest"}
    own["isolation.level"] = arguments.text("isolation-level")
    own |= MEMBER_CONFIG | {"group.id": group} if group else _passing_group(java_config)
    consumer = clients.consumer(
        servers, {name: java_config[name] for name in java_config if name != "auto.offset.reset"}, own
    )
    reading = Reading(
        consumer, formatter, limit, timeout_ms, arguments.has("skip-message-on-error"), is_member=group is not None
    )
    return _read(arguments, reading, _source(arguments, consumer, start))


def _passing_group(java_config: dict[str, str]) -> dict[str, Any]:
    """Without a name for its group Kafka's console consumer makes one up, and commits nothing there. What it has read
    must therefore stay its own through a rebalance, or it would begin anew."""
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
        said = java_config["auto.offset.reset"]
        raise ToolFailed(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={said}', please remove one option"
        )
    level = arguments.text("isolation-level")
    if level not in ISOLATION_LEVELS:
        listed = ", ".join(ISOLATION_LEVELS)
        raise ToolFailed(f"Invalid value {level} for configuration isolation.level: String must be one of: {listed}")


def _group(arguments: Arguments, java_config: dict[str, str]) -> str | None:
    """The group asked for by flag or property; None reads without one."""
    asked = sorted({group for group in (arguments.text("group"), java_config.get("group.id")) if group is not None})
    if len(asked) > 1:
        raise UsageError(GROUP_MISMATCH.format(ids=", ".join(f"'{group}'" for group in asked)))
    if asked and arguments.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    return asked[0] if asked else None


def _start(arguments: Arguments, java_config: dict[str, str]) -> int | str:
    """An offset, `earliest` or `latest`."""
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
        raise ToolFailed(f"--formatter {name}: there are {', '.join(FORMATTERS)}")
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
    """Something that is asked to look for new topics, or None where librdkafka does that by itself."""
    from moldau.cli.kafka.console.group_member import subscribed
    from moldau.cli.kafka.console.standalone_consumer import first_offset, whole_partition

    topic = arguments.text("topic")
    index = arguments.integer("partition")
    if index is None:
        return subscribed(consumer, topic, arguments.text("include"))
    whole_partition(consumer, topic or "", index, first_offset(start))
    return None


class Reading:
    """The loop: takes records, prints them, counts them, and knows when to end."""

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
        self._told: set[str] = set()
        self.count = 0

    def run(self, source: Any, stop: Stop) -> None:
        out = sys.stdout.buffer
        last = time.monotonic()
        while not stop.status and (self._limit is None or self._limit < 0 or self.count < self._limit):
            now = time.monotonic()
            if self._timeout is not None and now - last >= self._timeout:
                return
            if source is not None:
                source.refresh(now)
            wait = POLL_SECONDS if self._timeout is None else min(POLL_SECONDS, self._timeout - (now - last))
            records = self._take(wait)
            if records:
                self._print(out, records)
                last = time.monotonic()

    def close(self) -> None:
        self._consumer.close()

    def _take(self, wait_seconds: float) -> list[Any]:
        """Waits for a first record, then takes along what is there already."""
        room = RECORDS_AT_ONCE
        if self._limit is not None and self._limit >= 0:
            room = min(room, self._limit - self.count)
        first = self._consumer.poll(max(0.0, wait_seconds))
        if first is None:
            return []
        records = [first, *self._consumer.consume(room - 1, 0)] if room > 1 else [first]
        return [record for record in records if self._sound(record)]

    def _sound(self, record: Any) -> bool:
        """A record, and not an error in a record's place. Errors are told once and waited out."""
        error = record.error()
        if error is None:
            return True
        line = clients.words(error)
        if error.fatal():
            raise clients.Refused(error)
        if line not in self._told:
            self._told.add(line)
            complain(f"WARN {line}")
        return False

    def _print(self, out: IO[bytes], records: list[Any]) -> None:
        try:
            lines = b"" if self._formatter is None else self._formatter.lines(records)
        except ToolFailed:
            self._print_one_by_one(out, records)
            return
        # Counted before it can be seen: Ctrl-C may come in between.
        self.count += len(records)
        out.write(lines)
        out.flush()
        self._done(records)

    def _done(self, records: list[Any]) -> None:
        if self._is_member:
            store_printed(self._consumer, records)

    def _print_one_by_one(self, out: IO[bytes], records: list[Any]) -> None:
        """One of them cannot be read: those before it are printed, and it ends the tool or is left out."""
        assert self._formatter is not None
        for record in records:
            self.count += 1
            try:
                out.write(self._formatter.lines([record]))
            except ToolFailed as error:
                if not self._skip_errors:
                    raise
                complain(f"WARN {error}; the record is left out")
            finally:
                # Also one that cannot be printed: or else a group would never get beyond it.
                self._done([record])
            out.flush()


def _read(arguments: Arguments, reading: Reading, source: Any) -> int:
    """Runs the loop to its end, whichever it is, and says how many records there were."""
    stop = Stop()
    try:
        with stop:
            reading.run(source, stop)
    except BrokenPipeError:
        # `| head` has seen enough. Kafka ends with status 0 then.
        reading.close()
        forget_stdout()
        return 0
    except BaseException:
        _farewell(arguments, reading)
        raise
    _farewell(arguments, reading)
    return stop.status


def _farewell(arguments: Arguments, reading: Reading) -> None:
    if arguments.has("enable-systest-events"):
        print("shutdown_complete")
    reading.close()
    complain(f"Processed a total of {reading.count} messages")


if __name__ == "__main__":
    sys.exit(main())
