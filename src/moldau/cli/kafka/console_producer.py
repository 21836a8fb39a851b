"""kafka-console-producer: every line of standard input becomes a record.

Each line is one call into librdkafka and nothing more: it reports only failures, so that no callbacks slow down a
piped file of millions of lines. console/line_reader.py parses lines.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError, key_values
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.console.line_reader import LineReader, without_line_end
from moldau.cli.kafka.tool import ToolFailed, print_to_stderr, run

if TYPE_CHECKING:
    from moldau.client.confluent import Producer

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS: Final = ("all", "-1", "0", "1")
FAILURES_SHOWN: Final = 10
"""How many failed records are reported one by one, so that millions of failures do not print millions of lines."""
FULL_QUEUE_SECONDS: Final = 0.05

IDEMPOTENCE_PROPERTIES: Final = frozenset({"enable.idempotence", "retries", "max.in.flight.requests.per.connection"})

TO_PROPERTY: Final = {
    "batch-size": "batch.size",
    "max-partition-memory-bytes": "batch.size",
    "timeout": "linger.ms",
    "message-send-max-retries": "retries",
    "retry-backoff-ms": "retry.backoff.ms",
    "request-timeout-ms": "request.timeout.ms",
    "request-required-acks": "acks",
    "metadata-expiry-ms": "metadata.max.age.ms",
    "max-memory-bytes": "buffer.memory",
    "socket-buffer-size": "send.buffer.bytes",
}
"""Flags that are client properties under another name."""

TOOL_CONFIG: Final = {
    "client.id": "console-producer",
    "partitioner": "murmur2_random",  # Java's choice of partition for a key
    "acks": "all",
    "max.in.flight.requests.per.connection": 5,
    "delivery.report.only.error": True,
    "message.timeout.ms": 60_000,
    "topic.metadata.propagation.max.ms": 10_000,
}

FLAGS = ToolFlags(
    "This tool helps to read data from standard input and publish it to Kafka.",
    (
        Flag(
            "bootstrap-server",
            "REQUIRED: Brokers, HOST1:PORT1,HOST2:PORT2.",
            "server to connect to",
            former_names=("broker-list",),
        ),
        Flag("topic", "REQUIRED: The topic to write to.", "topic"),
        Flag("sync", "Wait for each record to be acknowledged before the next is sent."),
        Flag(
            "compression-codec",
            "none, gzip, snappy, lz4 or zstd; without a value, gzip.",
            "compression-codec",
            argument_optional=True,
        ),
        Flag("batch-size", "Largest size of a batch in bytes.", "size", "Integer"),
        Flag(
            "max-partition-memory-bytes",
            "(Deprecated: use --batch-size) Largest size of a batch in bytes.",
            "memory in bytes per partition",
            "Integer",
        ),
        Flag("message-send-max-retries", "How many times a failed request is sent again.", "Integer", "Integer"),
        Flag("retry-backoff-ms", "How long to wait before sending again.", "Long", "Long"),
        Flag("timeout", "How long a record may wait for others to share its batch.", "timeout_ms", "Long"),
        Flag("request-required-acks", "Who must have a record: all or -1, 1 or 0.", "request required acks"),
        Flag("request-timeout-ms", "How long the broker may take to acknowledge.", "request timeout ms", "Integer"),
        Flag("metadata-expiry-ms", "How old metadata may grow.", "metadata expiration interval", "Long"),
        Flag(
            "max-block-ms",
            "How long to wait at the end for unsent records.",
            "max block on send",
            "Long",
            "60000",
        ),
        Flag("max-memory-bytes", "Memory for records not yet sent.", "total memory in bytes", "Long"),
        Flag("socket-buffer-size", "The size of the socket's send buffer.", "size", "Integer"),
        Flag("line-reader", "The reader of lines; there is one, LineMessageReader.", "reader_class"),
        Flag(
            "reader-property",
            "How lines are read: parse.key, parse.headers, ignore.error, key.separator, headers.delimiter,"
            " headers.separator, headers.key.separator, null.marker. With parse.headers and"
            " parse.key, a line is headers, key and value, with a TAB between them. Repeatable.",
            "prop",
        ),
        Flag("property", "How lines are read.", "prop", replaced_by="reader-property"),
        Flag("reader-config", "A file of reader properties.", "config file"),
        Flag("command-property", "A property of the producer, key=value. Repeatable.", "producer_prop"),
        Flag("producer-property", "A property of the producer.", "producer_prop", replaced_by="command-property"),
        Flag("command-config", "A file of producer properties.", "config file"),
        Flag("producer.config", "A file of producer properties.", "config file", replaced_by="command-config"),
    ),
    warning="Warning: --{old} is deprecated and will be removed in a future version. Use --{new} instead.",
    conflict_message="Options --{new} and --{old} cannot be specified together.",
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-console-producer", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    arguments.require("topic")
    if not arguments.has("bootstrap-server"):
        raise UsageError('Missing required argument "[bootstrap-server]"')
    topic = arguments.single_value("topic") or ""
    line_reader = arguments.single_value("line-reader")
    if line_reader is not None and not line_reader.endswith("LineMessageReader"):
        raise ToolFailed(f"{line_reader} is not available here; leave --line-reader out to use LineMessageReader")
    reader = LineReader.from_properties(
        {
            **properties.load(arguments.single_value("reader-config")),
            **key_values(arguments.values_of("reader-property")),
        }
    )
    failures = Failures()
    tool_config: dict[str, Any] = {**TOOL_CONFIG, "on_delivery": failures.on_delivery}
    java_config = _java_config(arguments)
    # Java's producer is idempotent by default. If the user sets acks or one of these properties, librdkafka decides.
    tool_config["enable.idempotence"] = (
        java_config.get("acks", "all") in ("all", "-1") and not IDEMPOTENCE_PROPERTIES & java_config.keys()
    )
    producer = clients.producer(arguments.single_value("bootstrap-server") or "", java_config, tool_config)
    with Poller(producer) as poller:
        try:
            _send(producer, topic, reader, sync=arguments.has("sync"))
        finally:
            # After a wrong line or Ctrl-C, still send the records that were read before.
            unsent = _flush(producer, (arguments.integer("max-block-ms") or 0) / 1000, poller)
    if poller.fatal is not None and not failures.count:
        raise poller.fatal
    return failures.report_total(unsent)


def _java_config(arguments: Arguments) -> dict[str, str]:
    """Return the producer's properties by their Java names. --command-property overrides the file, a flag overrides
    both."""
    java_config = properties.load(arguments.single_value("command-config"))
    java_config.update(key_values(arguments.values_of("command-property")))
    for flag, name in TO_PROPERTY.items():
        if arguments.has(flag):
            java_config[name] = str(
                arguments.single_value(flag) if flag == "request-required-acks" else arguments.integer(flag)
            )
    if arguments.has("compression-codec"):
        java_config["compression.type"] = arguments.single_value("compression-codec") or "gzip"
    for name, choices in (("compression.type", CODECS), ("acks", ACKS)):
        if name in java_config and java_config[name] not in choices:
            listed = ", ".join(choices)
            raise ToolFailed(
                f"Invalid value {java_config[name]} for configuration {name}: String must be one of: {listed}"
            )
    return java_config


def _send(producer: Producer, topic: str, reader: LineReader, sync: bool) -> None:
    from moldau.client.confluent import KafkaException

    produce = _blocking_produce(producer)
    lines = _lines()
    try:
        if reader.plain and not sync:
            for line in lines:
                produce(topic, without_line_end(line))
            return
        for record in reader.records(lines):
            produce(topic, record.value, record.key, headers=record.headers)
            if sync:
                producer.flush()
    except KafkaException as error:  # `flush` and `poll` raise fatal errors too
        raise clients.ClientError(error.args[0]) from error


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input; on a terminal, print Kafka's prompt."""
    stdin: IO[bytes] = sys.stdin.buffer
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from stdin
        return
    while True:
        print(">", end="", flush=True)
        line = stdin.readline()
        if not line:
            return
        yield line


def _blocking_produce(producer: Producer) -> Callable[..., None]:
    """Return a `produce` that waits while the queue is full."""
    direct = producer.produce

    def produce(*args: Any, **kwargs: Any) -> None:
        while True:
            try:
                direct(*args, **kwargs)
                return
            except BufferError:
                producer.poll(FULL_QUEUE_SECONDS)

    return produce


def _flush(producer: Producer, seconds: float, poller: Poller) -> int:
    """Wait until all records are delivered or have failed; return how many are left."""
    from moldau.client.confluent import KafkaException

    while True:
        try:
            return producer.flush(seconds)
        except KafkaException as error:  # a fatal error; all records fail now
            poller.fatal = clients.ClientError(error.args[0])


class Poller:
    """Runs delivery callbacks while the main thread waits for lines, so that failures are reported when they happen."""

    fatal: clients.ClientError | None = None
    """After this error nothing can be sent any more."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delivery reports", daemon=True)

    def __enter__(self) -> Poller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        from moldau.client.confluent import KafkaException

        while not self._stopped.is_set():
            try:
                self._producer.poll(0.1)
            except KafkaException as error:
                self.fatal = clients.ClientError(error.args[0])


class Failures:
    """Counts records that were not delivered, and reports the first ones."""

    def __init__(self) -> None:
        self.count = 0

    def on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            return
        self.count += 1
        if self.count <= FAILURES_SHOWN:
            key = "null" if message.key() is None else f"{len(message.key())} bytes"
            value = "null" if message.value() is None else f"{len(message.value())} bytes"
            print_to_stderr(
                f"ERROR Error when sending message to topic {message.topic()} with key: {key},"
                f" value: {value} with error: {clients.describe_error(error)}"
            )

    def report_total(self, unsent: int) -> int:
        """Print how many records were not delivered, unless each was reported; return the exit status of the tool."""
        lost = self.count + unsent
        if lost > FAILURES_SHOWN or unsent:
            print_to_stderr(f"ERROR {lost} messages were not delivered.")
        return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
